// Detects file systems on which a store is not kept: those that hosts share, and those whose files
// go soon.
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

constexpr std::array<std::string_view, 2> kMemoryMounts = {"tmpfs", "ramfs"};
/// Folders that Slurm's job_container/tmpfs, pam_namespace and systemd's PrivateTmp= replace by one
/// of the job's, the user's or the service's own.
constexpr std::array<std::string_view, 3> kPrivatePoints = {"/tmp", "/var/tmp", "/dev/shm"};
/// Its subvolumes are seen as parts, too, and stay.
constexpr std::string_view kBtrfs = "btrfs";

std::string MountInfo() {
  std::ifstream file("/proc/self/mountinfo");
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

/// mountinfo writes blanks, tabs, line ends and backslashes as \040 and the like.
std::string WithoutEscapes(const std::string& text) {
  std::string plain;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const auto octal = [&](std::size_t at) {
      return at < text.size() && text[at] >= '0' && text[at] < '8';
    };
    if (text[i] != '\\' || !octal(i + 1) || !octal(i + 2) || !octal(i + 3)) {
      plain += text[i];
      continue;
    }
    plain += static_cast<char>(std::stoi(text.substr(i + 1, 3), nullptr, 8));
    i += 3;
  }
  return plain;
}

bool IsBelow(const std::string& point, const std::string& path) {
  return point == "/" || path == point || path.starts_with(point + "/");
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
  const std::string mount_type = MountTypeOf(MountInfo(), major(entry.st_dev), minor(entry.st_dev));
  // f_type is signed on some systems; the magic numbers are unsigned 32-bit values.
  const auto f_type = static_cast<std::uint64_t>(static_cast<std::uint32_t>(file_system.f_type));
  return NetworkFileSystemName(f_type, mount_type);
}

MountPoint MountOf(std::string_view mountinfo, const std::filesystem::path& path) {
  std::istringstream lines{std::string(mountinfo)};
  MountPoint best;
  for (std::string line; std::getline(lines, line);) {
    std::istringstream fields(line);
    std::string id, parent, device, field;
    MountPoint mount;
    fields >> id >> parent >> device >> mount.root >> mount.point;
    while (fields >> field && field != "-") {
    }
    if (!(fields >> mount.type)) continue;
    mount.root = WithoutEscapes(mount.root);
    mount.point = WithoutEscapes(mount.point);
    // A later line covers an earlier one at the same point.
    if (IsBelow(mount.point, path.string()) && mount.point.size() >= best.point.size())
      best = std::move(mount);
  }
  return best;
}

std::string WhyFilesGo(const MountPoint& mount) {
  if (Contains(kPrivatePoints, mount.point) && mount.root != "/" && mount.type != kBtrfs)
    return "lies in a private " + mount.point + " (" + mount.root +
           "), which other jobs do not see and which may end with this one";
  if (Contains(kMemoryMounts, mount.type))
    return "lies on " + mount.type + ", which the next start of this host empties";
  return "";
}

std::string WhyFilesGoIn(const std::filesystem::path& path) {
  std::error_code error;
  return WhyFilesGo(MountOf(MountInfo(), std::filesystem::weakly_canonical(path, error)));
}

}  // namespace adaptive_train
