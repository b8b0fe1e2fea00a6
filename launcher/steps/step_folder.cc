#include "launcher/steps/step_folder.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <stdlib.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <utility>

namespace adaptive_train {
namespace {

namespace fs = std::filesystem;

constexpr char kPrefix[] = "adaptive-train-step-";
/// A start beside this one may take a folder that is not locked yet for one that was left behind.
constexpr int kTries = 100;

tl::unexpected<Error> FailErrno(const std::string& path) {
  return Fail(path + ": " + std::strerror(errno), ExitCode::kPreflight);
}

/// A descriptor of the folder itself, never of what a link names; -1 where there is none.
int OpenFolder(const std::string& path) {
  return ::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
}

/// Whether `path` still names what is open as `folder`, a folder of `user`.
bool IsThere(const std::string& path, int folder, ::uid_t user) {
  struct stat open {
  }, named{};
  return ::fstat(folder, &open) == 0 && ::lstat(path.c_str(), &named) == 0 &&
         open.st_dev == named.st_dev && open.st_ino == named.st_ino && open.st_uid == user;
}

/// Of a file system without locks every folder counts as held.
bool TakeLock(int folder) { return ::flock(folder, LOCK_EX | LOCK_NB) == 0; }

void RemoveIfLeft(const std::string& path, ::uid_t user) {
  const int folder = OpenFolder(path);
  if (folder < 0) return;
  std::error_code ignored;
  if (TakeLock(folder) && IsThere(path, folder, user)) fs::remove_all(path, ignored);
  ::close(folder);
}

}  // namespace

void RemoveLeftSteps(const std::string& temporary, ::uid_t user) {
  std::error_code error;
  for (fs::directory_iterator entry(temporary, error), end; !error && entry != end;
       entry.increment(error)) {
    if (entry->path().filename().string().starts_with(kPrefix))
      RemoveIfLeft(entry->path().string(), user);
  }
}

Result<StepFolder> StepFolder::Make() {
  std::error_code error;
  const std::string temporary = fs::temp_directory_path(error).string();
  if (error)
    return Fail(fmt::format("the temporary folder (TMPDIR): {}", error.message()),
                ExitCode::kPreflight);
  RemoveLeftSteps(temporary, ::geteuid());
  for (int tries = 0; tries < kTries; ++tries) {
    std::string path = temporary + "/" + kPrefix + "XXXXXX";
    if (::mkdtemp(path.data()) == nullptr) return FailErrno(path);
    StepFolder made(path, OpenFolder(path));
    // ENOLCK and the like: a file system without locks, on which nobody removes it either.
    const bool taken = made.lock_ >= 0 && !TakeLock(made.lock_) && errno == EWOULDBLOCK;
    if (!taken && IsThere(path, made.lock_, ::geteuid())) return made;
  }
  return Fail(temporary + ": other starts remove what this one makes", ExitCode::kPreflight);
}

StepFolder::StepFolder(StepFolder&& other) noexcept
    : path_(std::move(other.path_)), lock_(std::exchange(other.lock_, -1)) {}

StepFolder::~StepFolder() {
  if (lock_ < 0) return;
  std::error_code ignored;
  fs::remove_all(path_, ignored);
  ::close(lock_);
}

}  // namespace adaptive_train
