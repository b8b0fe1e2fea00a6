// The profile for this allocation's plan: stored figures where fresh, the rest measured now.
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
  /// `stored` merged with what was measured. Without `reuse`, only the failures come from `stored`.
  Profile profile;
  Profile measured;    // new figures only, for ProfileStore::SaveMeasurements
  double seconds = 0;  // spent measuring, without the launches
  double launch_seconds = 0;
  std::string summary;         // one line: what was reused, checked and measured, and the time
  std::vector<SlowPart> slow;  // far slower than their kind
};

/// Reuses what is fresh in `stored` (ProfileStore::ProfileOf for these nodes), checks one round of
/// pairs and all devices, and measures what is missing. A second step measures all links of nodes
/// whose checked link has changed, and the devices that DoubtfulDevices names. Without `reuse`
/// everything is measured. There is one step even if nothing is missing. Fails as MeasureLinks
/// does.
Result<AllocationProfile> ProfileAllocation(const MeasureSite& site, const Profile& stored,
                                            bool reuse);

}  // namespace adaptive_train
