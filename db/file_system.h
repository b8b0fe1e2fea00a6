// Which file systems are shared between hosts: there SQLite's locks and WAL do not hold, and a
// store would break.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>

#include "core/result.h"

namespace adaptive_train {

/// The name of the network file system that statfs calls `f_type` and the mount table calls
/// `mount_type` ("" where unknown); empty for a local one. FUSE is taken for a network file system
/// except for the kinds known to be local: it is better to ask for another path than to lose a
/// store.
std::string NetworkFileSystemName(std::uint64_t f_type, std::string_view mount_type);

/// The mount type (the word behind " - ") that the text of /proc/self/mountinfo gives for the
/// device; empty where the device is not in it.
std::string MountTypeOf(std::string_view mountinfo, unsigned major, unsigned minor);

/// The name of the network file system that the existing `path` lies on, empty for a local one.
/// Fails with ExitCode::kStore where the file system cannot be asked. May block as long as a hung
/// network mount does.
Result<std::string> NetworkFileSystemOf(const std::filesystem::path& path);

}  // namespace adaptive_train
