// Keeps node snapshots in ROOT/JOBID/node.json: owned by root, readable by all, never through a
// link.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "core/result.h"

namespace adaptive_train::plugin {

/// Writes a job's snapshot, making the folders on the way. A reader sees all of it or none; one
/// that was there is replaced. Refuses a root or job folder that is a link, not a folder, another
/// user's, or open to other writers. On failure the job has no snapshot, not even an older one.
Result<void> WriteSnapshot(const std::string& root, std::uint32_t job_id, std::string_view text);

/// Removes a job's snapshot and folder, and nothing that WriteSnapshot did not put there. Fine if
/// there is none, also because WriteSnapshot would refuse the root.
Result<void> RemoveSnapshot(const std::string& root, std::uint32_t job_id);

}  // namespace adaptive_train::plugin
