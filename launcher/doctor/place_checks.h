// What doctor looks at of the places a run writes to: the store, and the run folder.
#pragma once

#include <string>

#include "db/store_location.h"
#include "launcher/doctor/finding.h"
#include "launcher/nodes/allocation.h"

namespace adaptive_train {

/// Whether the store can be used. Opens a file where it is, and makes none; asks a service for its
/// greeting. Blocks as opening the store does.
Finding CheckStore(const StoreChoice& choice);

/// Whether all nodes can see files in `folder`, or in the nearest folder above it that is there. In a
/// job of several nodes a file is made there and looked for from each; elsewhere the kind of file
/// system says what can be said.
Finding CheckRunFolder(const std::string& folder, const Allocation& allocation);

}  // namespace adaptive_train
