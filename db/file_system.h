// Detects file systems on which a store is not kept: those that hosts share, where SQLite's locks
// and WAL do not work and a store would be corrupted, and those whose files go soon.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>

#include "core/result.h"

namespace adaptive_train {

/// The name of a network file system with statfs type `f_type` and mount table type `mount_type`
/// ("" if unknown); empty for a local one. FUSE counts as a network file system except for kinds
/// known to be local: asking for another path is better than losing a store.
std::string NetworkFileSystemName(std::uint64_t f_type, std::string_view mount_type);

/// The device's mount type (the word behind " - ") in the text of /proc/self/mountinfo; empty if
/// the device is not listed.
std::string MountTypeOf(std::string_view mountinfo, unsigned major, unsigned minor);

/// The name of the network file system that holds the existing `path`; empty for a local one. Fails
/// with ExitCode::kStore if the file system cannot be queried. May block as long as a hung network
/// mount does.
Result<std::string> NetworkFileSystemOf(const std::filesystem::path& path);

/// A line of /proc/self/mountinfo.
struct MountPoint {
  std::string root;   // what of its file system is seen there: "/" for all
  std::string point;  // where
  std::string type;
};

/// The mount in the text of /proc/self/mountinfo through which the absolute `path` is seen; empty
/// members if there is none.
MountPoint MountOf(std::string_view mountinfo, const std::filesystem::path& path);

/// Why files there will not stay, in words that follow the name of a file: "lies on tmpfs, which
/// the next start of this host empties". Empty where they stay.
std::string WhyFilesGo(const MountPoint& mount);
/// The same for the mount of the existing absolute `path`, links followed.
std::string WhyFilesGoIn(const std::filesystem::path& path);

}  // namespace adaptive_train
