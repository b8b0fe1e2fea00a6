#include "core/kept_folder.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <ctime>
#include <memory>
#include <utility>
#include <vector>

namespace adaptive_train {
namespace {

constexpr char kName[] = "adaptive-train.";
constexpr int kFolderFlags = O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK;

tl::unexpected<Error> FailWithErrno(const std::string& path) {
  return Fail(path + ": " + std::strerror(errno), ExitCode::kRankFailure);
}

/// Closes a descriptor at the end of a scope.
struct Folder {
  int descriptor;
  explicit Folder(int opened) : descriptor(opened) {}
  ~Folder() {
    if (descriptor >= 0) ::close(descriptor);
  }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;
};

/// The names in an open folder that begin with `prefix`.
std::vector<std::string> NamesWith(int folder, std::string_view prefix) {
  std::vector<std::string> names;
  const int own = ::openat(folder, ".", kFolderFlags);
  if (own < 0) return names;
  const std::unique_ptr<DIR, int (*)(DIR*)> entries(::fdopendir(own), ::closedir);
  if (entries == nullptr) {
    ::close(own);
    return names;
  }
  while (const dirent* entry = ::readdir(entries.get())) {
    const std::string_view name = entry->d_name;
    if (name != "." && name != ".." && name.substr(0, prefix.size()) == prefix)
      names.emplace_back(name);
  }
  return names;
}

bool BelongsTo(int folder, uid_t owner) {
  struct stat info {};
  return ::fstat(folder, &info) == 0 && info.st_uid == owner;
}

/// The folder is open and has been looked at; its name may by now be another's, which rmdir removes
/// only if it is an empty folder.
Result<void> RemoveOpened(int root, int folder, const std::string& name, const std::string& path) {
  for (const std::string& file : NamesWith(folder, "")) {
    if (::unlinkat(folder, file.c_str(), 0) != 0 && errno != ENOENT)
      return FailWithErrno(path + "/" + file);
  }
  if (::unlinkat(root, name.c_str(), AT_REMOVEDIR) != 0 && errno != ENOENT)
    return FailWithErrno(path);
  return {};
}

/// Calls `remove(folder)` for the owner's folders with this prefix, and keeps the first failure.
template <class Remove>
Result<void> ForFolders(const std::string& root, std::string_view prefix, uid_t owner,
                        Remove remove) {
  const Folder all(::open(root.c_str(), kFolderFlags));
  if (all.descriptor < 0 && errno == ENOENT) return {};
  if (all.descriptor < 0) return FailWithErrno(root);
  Result<void> outcome;
  for (const std::string& name : NamesWith(all.descriptor, prefix)) {
    const Folder folder(::openat(all.descriptor, name.c_str(), kFolderFlags));
    if (folder.descriptor < 0 || !BelongsTo(folder.descriptor, owner)) continue;
    const std::string path = root + "/" + name;
    Result<void> done = remove(folder.descriptor)
                            ? RemoveOpened(all.descriptor, folder.descriptor, name, path)
                            : Result<void>();
    if (outcome && !done) outcome = std::move(done);
  }
  return outcome;
}

}  // namespace

std::string KeptFolderPrefix(uid_t user, std::string_view job, std::string_view node) {
  std::string prefix = kName + std::to_string(user) + "." + std::string(job) + ".";
  if (!node.empty()) prefix += std::string(node) + ".";
  return prefix;
}

Result<void> RemoveKeptFolders(const std::string& root, std::string_view prefix, uid_t owner) {
  return ForFolders(root, prefix, owner, [](int) { return true; });
}

Result<void> RemoveStaleKeptFolders(const std::string& root, std::chrono::seconds age) {
  const uid_t self = ::geteuid();
  const std::time_t oldest = std::time(nullptr) - static_cast<std::time_t>(age.count());
  return ForFolders(root, kName + std::to_string(self) + ".", self, [&](int folder) {
    struct stat info {};
    return ::fstat(folder, &info) == 0 && info.st_mtime < oldest &&
           ::flock(folder, LOCK_EX | LOCK_NB) == 0;
  });
}

Result<KeptFolder> KeptFolder::Hold(const std::string& root, const std::string& name) {
  const std::string path = root + "/" + name;
  if (::mkdir(path.c_str(), 0700) != 0 && errno != EEXIST) return FailWithErrno(path);
  KeptFolder folder(path, ::open(path.c_str(), kFolderFlags));
  if (folder.descriptor_ < 0) return FailWithErrno(path);
  struct stat info {};
  if (::fstat(folder.descriptor_, &info) != 0) return FailWithErrno(path);
  if (info.st_uid != ::geteuid() || (info.st_mode & 0077) != 0)
    return Fail(path + ": must belong to this user alone, with mode 0700", ExitCode::kRankFailure);
  if (::flock(folder.descriptor_, LOCK_SH | LOCK_NB) != 0) return FailWithErrno(path);
  return folder;
}

KeptFolder::KeptFolder(std::string path, int descriptor)
    : path_(std::move(path)), descriptor_(descriptor) {}

KeptFolder::KeptFolder(KeptFolder&& other) noexcept
    : path_(std::move(other.path_)), descriptor_(std::exchange(other.descriptor_, -1)) {}

KeptFolder::~KeptFolder() {
  if (descriptor_ >= 0) ::close(descriptor_);
}

void KeptFolder::RemoveIfEmpty() const { ::rmdir(path_.c_str()); }

}  // namespace adaptive_train
