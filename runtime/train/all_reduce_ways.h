// How a run's ranks sum what is neither compressed nor sharded: as the plan says, and on after a
// checkpoint as before it.
#pragma once

#include <map>
#include <string>

#include "core/plan.h"
#include "runtime/comm/group.h"

namespace adaptive_train {

/// What the plan says of the replicas of a rank's stage, its data group.
AllReduceWays WaysOf(const Plan& plan, int rank);

/// What a checkpoint keeps of every stage's ways, by name, in a run that began with those that
/// `before` keeps: another plan may have other ways, which add in another order, and a run that
/// goes on in the same layout gets the same bits only with these.
std::map<std::string, double> KeptWays(const Plan& plan,
                                       const std::map<std::string, double>& before);

/// Those of a checkpoint for the rank's stage; those of the plan where it has none, was written by
/// another number of stages or members, or sums began inside nodes that do not have equally many of
/// them now.
AllReduceWays WaysAfter(const std::map<std::string, double>& kept, const Plan& plan, int rank);

}  // namespace adaptive_train
