// The profile that a plan for this allocation is made from: what is stored where it is fresh, the
// rest measured now.
#pragma once

#include <string>
#include <vector>

#include "core/profile.h"
#include "core/result.h"
#include "launcher/measure/measure_step.h"
#include "launcher/measure/profile_reuse.h"
#include "launcher/nodes/slow_parts.h"

namespace adaptive_train {

struct AllocationProfile {
  /// `stored` with what was measured merged into it; without `reuse`, of `stored` the failures
  /// only.
  Profile profile;
  Profile measured;    // this alone: for ProfileStore::SaveMeasurements
  double seconds = 0;  // that measuring took, without the launches
  double launch_seconds = 0;
  std::string summary;         // one line: what was taken, checked, measured, in what time
  std::vector<SlowPart> slow;  // far below their kind
};

/// Takes what `stored` (ProfileStore::ProfileOf for these nodes) holds where it is fresh, checks
/// one round of pairs and all devices, and measures what is missing. In a second step: where a
/// checked link has changed, all links of its nodes; devices that DoubtfulDevices names. Without
/// `reuse` measures everything. One step even where nothing is missing. Fails as MeasureLinks
/// does.
Result<AllocationProfile> ProfileAllocation(const MeasureSite& site, const Profile& stored,
                                            bool reuse);

}  // namespace adaptive_train
