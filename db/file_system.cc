// Detects file systems that hosts share. SQLite's locks and WAL do not work there, and a store
// would be corrupted.
#include "db/file_system.h"

#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/sysmacros.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <sstream>

namespace adaptive_train {
namespace {

struct KnownType {
  std::uint64_t f_type;
  std::string_view name;
};

// statfs(2) and the kernel's magic.h name some; the others are what these file systems return.
constexpr std::array kNetworkTypes = {
    KnownType{0x6969, "nfs"},          KnownType{0x517B, "smb"},
    KnownType{0xFF534D42, "cifs"},     KnownType{0xFE534D42, "smb3"},
    KnownType{0x0BD00BD0, "lustre"},   KnownType{0x47504653, "gpfs"},
    KnownType{0x19830326, "beegfs"},   KnownType{0x00C36400, "ceph"},
    KnownType{0x5346414F, "afs"},      KnownType{0x6B414653, "kafs"},
    KnownType{0x01161970, "gfs2"},     KnownType{0x7461636F, "ocfs2"},
    KnownType{0x20030528, "orangefs"}, KnownType{0xAAD7AAEA, "panfs"},
    KnownType{0x73757245, "coda"},     KnownType{0x564C, "ncp"},
    KnownType{0x01021997, "9p"},       KnownType{0x61636673, "acfs"},
    KnownType{0x013111A8, "ibrix"},    KnownType{0xBEEFDEAD, "snfs"},
    KnownType{0xBACBACBC, "vmhgfs"},   KnownType{0x786F4256, "vboxsf"},
};

// Names in the mount table, for file systems without a magic number or behind another one.
constexpr std::array<std::string_view, 16> kNetworkMounts = {
    "nfs",  "nfs4",   "cifs",  "smb3",     "lustre", "gpfs", "mmfs",  "beegfs",
    "ceph", "wekafs", "panfs", "orangefs", "dvs",    "afs",  "pvfs2", "virtiofs"};

constexpr std::uint64_t kFuse = 0x65735546;
constexpr std::array<std::string_view, 2> kLocalFuseMounts = {"fuseblk", "fuse.fuse-overlayfs"};

template <class Names>
bool Contains(const Names& names, std::string_view name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

}  // namespace

std::string NetworkFileSystemName(std::uint64_t f_type, std::string_view mount_type) {
  if (Contains(kNetworkMounts, mount_type)) return std::string(mount_type);
  if (f_type == kFuse) {
    if (Contains(kLocalFuseMounts, mount_type)) return "";
    return mount_type.empty() ? "fuse" : std::string(mount_type);
  }
  const auto known = std::find_if(kNetworkTypes.begin(), kNetworkTypes.end(),
                                  [&](const KnownType& type) { return type.f_type == f_type; });
  return known == kNetworkTypes.end() ? "" : std::string(known->name);
}

std::string MountTypeOf(std::string_view mountinfo, unsigned major, unsigned minor) {
  const std::string wanted = std::to_string(major) + ":" + std::to_string(minor);
  std::istringstream lines{std::string(mountinfo)};
  std::string found;
  for (std::string line; std::getline(lines, line);) {
    std::istringstream fields(line);
    std::string id, parent, device, field, type;
    fields >> id >> parent >> device;
    if (device != wanted) continue;
    while (fields >> field && field != "-") {
    }
    if (fields >> type) found = type;
  }
  return found;
}

Result<std::string> NetworkFileSystemOf(const std::filesystem::path& path) {
  struct statfs file_system {};
  struct stat entry {};
  if (statfs(path.c_str(), &file_system) != 0 || stat(path.c_str(), &entry) != 0) {
    return Fail(path.string() + ": cannot ask for its file system: " + std::strerror(errno),
                ExitCode::kStore);
  }
  std::ifstream file("/proc/self/mountinfo");
  std::stringstream mountinfo;
  mountinfo << file.rdbuf();
  const std::string mount_type =
      MountTypeOf(mountinfo.str(), major(entry.st_dev), minor(entry.st_dev));
  // f_type is signed on some systems; the magic numbers are unsigned 32-bit values.
  const auto f_type = static_cast<std::uint64_t>(static_cast<std::uint32_t>(file_system.f_type));
  return NetworkFileSystemName(f_type, mount_type);
}

}  // namespace adaptive_train
