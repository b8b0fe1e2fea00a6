// A FUSE file system with one empty folder, served by a thread; statfs sees it as a network file
// system.
#pragma once

#include <fcntl.h>
#include <linux/fuse.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <string>
#include <thread>

namespace adaptive_train {

/// Mounts itself on `folder` under the given type ("fuse.sshfs"). Requires a process with its own
/// mount namespace: nothing is unmounted before the process ends, and the thread ends with it.
class FuseMount {
 public:
  FuseMount(const std::filesystem::path& folder, const std::string& type) : device_(OpenDevice()) {
    if (device_ < 0) return;
    const std::string options = "fd=" + std::to_string(device_) +
                                ",rootmode=40000,user_id=" + std::to_string(geteuid()) +
                                ",group_id=" + std::to_string(getegid());
    mounted_ =
        mount("test", folder.c_str(), type.c_str(), MS_NOSUID | MS_NODEV, options.c_str()) == 0;
    if (mounted_) std::thread([this] { Serve(); }).detach();
  }
  FuseMount(const FuseMount&) = delete;
  FuseMount& operator=(const FuseMount&) = delete;

  bool Mounted() const { return mounted_; }
  /// The number of attempts to create or write something.
  int Changes() const { return changes_; }

 private:
  static int OpenDevice() {
    const int device = open("/dev/fuse", O_RDWR | O_CLOEXEC);
    if (device >= 0 || errno != ENOENT) return device;
    constexpr unsigned kMiscMajor = 10, kFuseMinor = 229;
    const std::string node =
        std::filesystem::temp_directory_path() / ("fuse-" + std::to_string(getpid()));
    if (mknod(node.c_str(), S_IFCHR | 0600, makedev(kMiscMajor, kFuseMinor)) != 0) return -1;
    const int made = open(node.c_str(), O_RDWR | O_CLOEXEC);
    unlink(node.c_str());
    return made;
  }

  void Serve() {
    alignas(fuse_in_header) std::array<char, 1 << 18> request{};
    while (read(device_, request.data(), request.size()) > 0) {
      Answer(*reinterpret_cast<const fuse_in_header*>(request.data()));
    }
  }

  void Answer(const fuse_in_header& request) {
    switch (request.opcode) {
      case FUSE_INIT: {
        fuse_init_out init{};
        init.major = FUSE_KERNEL_VERSION;
        init.minor = FUSE_KERNEL_MINOR_VERSION;
        init.max_write = 4096;
        return Reply(request, init);
      }
      case FUSE_GETATTR: {
        fuse_attr_out attributes{};
        attributes.attr.ino = FUSE_ROOT_ID;
        attributes.attr.mode = S_IFDIR | 0777;
        attributes.attr.nlink = 2;
        return Reply(request, attributes);
      }
      case FUSE_STATFS:
        return Reply(request, fuse_statfs_out{});
      case FUSE_LOOKUP:
        return Refuse(request, -ENOENT);
      case FUSE_FORGET:
      case FUSE_BATCH_FORGET:
        return;
      case FUSE_MKNOD:
      case FUSE_MKDIR:
      case FUSE_CREATE:
      case FUSE_WRITE:
        ++changes_;
        [[fallthrough]];
      default:
        return Refuse(request, -ENOSYS);
    }
  }

  template <class Body>
  void Reply(const fuse_in_header& request, const Body& body) {
    struct {
      fuse_out_header header;
      Body body;
    } answer{{static_cast<std::uint32_t>(sizeof(fuse_out_header) + sizeof body), 0, request.unique},
             body};
    if (write(device_, &answer, sizeof answer) < 0) close(device_);
  }
  void Refuse(const fuse_in_header& request, int error) {
    const fuse_out_header answer{sizeof answer, error, request.unique};
    if (write(device_, &answer, sizeof answer) < 0) close(device_);
  }

  int device_;
  bool mounted_ = false;
  std::atomic<int> changes_{0};
};

}  // namespace adaptive_train
