// Keeps node snapshots in ROOT/JOBID/node.json: owned by root, readable by all, never written
// through a link.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "core/result.h"

namespace adaptive_train::plugin {

/// Writes a job's snapshot atomically, creating the folders and replacing an older one. Refuses a
/// root or job folder that is a link, not a folder, owned by another user, or writable by others.
/// On failure the job has no snapshot, not even an older one.
Result<void> WriteSnapshot(const std::string& root, std::uint32_t job_id, std::string_view text);

/// Removes a job's snapshot and folder, and nothing that WriteSnapshot did not create. Succeeds if
/// there is none, or if WriteSnapshot would refuse the root.
Result<void> RemoveSnapshot(const std::string& root, std::uint32_t job_id);

}  // namespace adaptive_train::plugin
