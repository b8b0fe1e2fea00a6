// What is known of a cluster's nodes, and in which order they would be kept aside: a pure function.
#pragma once

#include <vector>

#include "core/profile.h"
#include "launcher/report/node_table.h"

namespace adaptive_train {

/// Those that `profile` has figures or failures of, the first to be kept aside first
/// (ChooseSpares).
std::vector<NodeStanding> StandingsOf(const Profile& profile);

}  // namespace adaptive_train
