// Decides which stored links and devices are still valid and which must be measured again. Pure
// functions.
#pragma once

#include <string>
#include <vector>

#include "core/cluster.h"
#include "core/measure_order.h"
#include "core/profile.h"

namespace adaptive_train {

/// What to do about the links of an allocation, in indices of its nodes.
struct ReusePlan {
  std::vector<RankPair> missing;   // not stored in both directions, or not fresh: to be measured
  std::vector<RankPair> check;     // one round of the others: checked for change
  std::vector<int> devices;        // nodes whose device or inner link is missing or not fresh
  std::vector<int> check_devices;  // all others: checked in parallel, at no extra time
};

/// Whether a job measures before it uses what a store tells.
enum class SpotCheck { kYes, kNo };
SpotCheck SpotCheckOf(const ProfileConfig& profile, const Cluster& cluster);

/// What may be used of the figures that a store tells: without the disputed ones, and without the
/// unconfirmed ones where no spot check will find out. An unconfirmed link between nodes is no
/// faster than the fastest cards at its ends, as far as the nodes' drivers tell. An unconfirmed
/// processor is no faster than any of its instruction set can be.
Profile Usable(Profile told, const Cluster& cluster, SpotCheck check);

/// Splits the pairs of `nodes` by what `stored` holds at the time `now` (UTC, seconds since 1970).
/// Without `reuse` all are missing. `turn` selects the round to check, so that jobs with different
/// turns (their ids) check different pairs.
ReusePlan PlanReuse(const Profile& stored, const std::vector<MeasuredNode>& nodes, double now,
                    bool reuse, std::int64_t turn);

/// Nodes with a link that was measured now and contradicts (profile_merge.h) the stored figure, in
/// their order.
std::vector<int> ChangedNodes(const Profile& stored, const Profile& checked,
                              const std::vector<MeasuredNode>& nodes);

/// Nodes whose devices must be measured again: all nodes of a kind with a doubtful device, so that
/// conditions are the same as the first time. A device is doubtful if it contradicts its stored
/// figure, differs from the kind's median by more than kSameWithin, or has a larger spread than
/// that.
std::vector<int> DoubtfulDevices(const Profile& stored, const Profile& measured,
                                 const std::vector<MeasuredNode>& nodes);

/// All pairs that include a node of `changed`, except those in `done`.
std::vector<RankPair> PairsOf(const std::vector<int>& changed, int nodes,
                              const std::vector<RankPair>& done);

/// `known` with each fresh figure merged into it, as the store does it.
Profile WithMeasured(Profile known, const Profile& fresh);

/// The results of both steps of one job; both measurements of a device count.
Profile BothLooks(Profile first, const Profile& second);

}  // namespace adaptive_train
