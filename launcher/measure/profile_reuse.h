// What of the stored links and devices may be believed, and what must be measured again: pure
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
  std::vector<RankPair> check;     // one round of the others: is it still so?
  std::vector<int> devices;        // nodes whose device or inner link is missing or not fresh
  std::vector<int> check_devices;  // all others: each measures its own, which takes no longer
};

/// Splits the pairs of `nodes` by what `stored` holds, at the time `now` (UTC, seconds since 1970).
/// Without `reuse` all are missing. `turn` picks the round that is checked, so that jobs with
/// different turns (their ids) check different pairs.
ReusePlan PlanReuse(const Profile& stored, const std::vector<MeasuredNode>& nodes, double now,
                    bool reuse, std::int64_t turn);

/// Nodes at an end of a link that was measured now and contradicts (profile_merge.h) what is
/// stored, in their order.
std::vector<int> ChangedNodes(const Profile& stored, const Profile& checked,
                              const std::vector<MeasuredNode>& nodes);

/// Nodes whose devices are to be measured once more: all of a kind of which one contradicts what is
/// stored, differs from the kind's median by more than kSameWithin, or wavers by more than that. All,
/// so that they are measured under the conditions of the first time.
std::vector<int> DoubtfulDevices(const Profile& stored, const Profile& measured,
                                 const std::vector<MeasuredNode>& nodes);

/// All pairs with an end in `changed`, except for those in `done`.
std::vector<RankPair> PairsOf(const std::vector<int>& changed, int nodes,
                              const std::vector<RankPair>& done);

/// `known` with each fresh figure merged into it as the store does it.
Profile WithMeasured(Profile known, const Profile& fresh);

/// What one job has measured in two steps: of a device that was measured twice both count.
Profile BothLooks(Profile first, const Profile& second);

}  // namespace adaptive_train
