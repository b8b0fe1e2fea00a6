#include "launcher/run/folder_lock.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <thread>
#include <utility>

#include "launcher/steps/stop_signals.h"

namespace adaptive_train {
namespace {

constexpr std::chrono::milliseconds kLook{100};

tl::unexpected<Error> FailErrno(const FolderLockRequest& request, int error) {
  return Fail(fmt::format("{}: {}/.lock: {}", request.what, request.folder, std::strerror(error)),
              ExitCode::kPreflight);
}

/// The errno of the last attempt, or 0 once taken; ECANCELED if a held signal asks to stop.
int TryUntil(int file, const FolderLockRequest& request) {
  const auto give_up = std::chrono::steady_clock::now() + request.patience;
  for (bool told = false;; told = true) {
    if (::flock(file, LOCK_EX | LOCK_NB) == 0) return 0;
    const int error = errno;
    if (PendingStopSignal()) return ECANCELED;
    if (error == EINTR) continue;
    if (error != EWOULDBLOCK || std::chrono::steady_clock::now() >= give_up) return error;
    if (!told) {
      request.on_notice(fmt::format(
          "{}: {} is locked by a process that may have died with its node; waiting {} s for it",
          request.what, request.folder,
          std::chrono::duration_cast<std::chrono::seconds>(request.patience).count()));
    }
    std::this_thread::sleep_for(kLook);
  }
}

}  // namespace

Result<FolderLock> FolderLock::Take(const FolderLockRequest& request) {
  const std::string path = request.folder + "/.lock";
  const int file = ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0644);
  if (file < 0) return FailErrno(request, errno);
  FolderLock lock(file);
  const int error = TryUntil(file, request);
  if (error == 0) return lock;
  if (const auto signal = PendingStopSignal(); signal && error == ECANCELED)
    return tl::unexpected(StoppedBy(*signal));
  if (error == EWOULDBLOCK) {
    return Fail(fmt::format("{}: {} is in use by another adaptive-train run; {}", request.what,
                            request.folder, request.advice),
                ExitCode::kPreflight);
  }
  if (error != ENOLCK && error != ENOSYS && error != EOPNOTSUPP) return FailErrno(request, error);
  request.on_notice(
      fmt::format("warning: {}: {} cannot be locked ({}): see to it that no other run uses it",
                  request.what, request.folder, std::strerror(error)));
  return lock;
}

FolderLock::FolderLock(FolderLock&& other) noexcept : file_(std::exchange(other.file_, -1)) {}

FolderLock::~FolderLock() {
  if (file_ >= 0) ::close(file_);
}

}  // namespace adaptive_train
