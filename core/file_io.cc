#include "core/file_io.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>

namespace adaptive_train {
namespace {

/// Closes a file descriptor at the end of a scope.
class Descriptor {
 public:
  explicit Descriptor(int fd) : fd_(fd) {}
  ~Descriptor() {
    if (fd_ >= 0) ::close(fd_);
  }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  int Get() const { return fd_; }

 private:
  int fd_;
};

tl::unexpected<Error> FailErrno(const std::string& path) {
  const int error = errno;
  return Fail(fmt::format("{}: {}", path, std::strerror(error)), ExitCode::kPreflight, error);
}

Result<void> WriteAll(int fd, std::string_view text, const std::string& path) {
  while (!text.empty()) {
    const ssize_t n = ::write(fd, text.data(), text.size());
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return FailErrno(path);
    text.remove_prefix(static_cast<std::size_t>(n));
  }
  if (::fsync(fd) != 0) return FailErrno(path);
  return {};
}

}  // namespace

Result<std::string> ReadFile(const std::string& path, std::size_t limit) {
  // O_NONBLOCK: opening a FIFO must not hang.
  Descriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (file.Get() < 0) return Fail(fmt::format("{}: {}", path, std::strerror(errno)));
  struct stat info {};
  if (::fstat(file.Get(), &info) != 0)
    return Fail(fmt::format("{}: {}", path, std::strerror(errno)));
  if (!S_ISREG(info.st_mode)) return Fail(fmt::format("{}: not a regular file", path));
  std::string text;
  char block[16384];
  for (;;) {
    const ssize_t n = ::read(file.Get(), block, sizeof block);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return Fail(fmt::format("{}: {}", path, std::strerror(errno)));
    if (n == 0) return text;
    if (text.size() + static_cast<std::size_t>(n) > limit) {
      return Fail(fmt::format("{}: larger than the {} bytes allowed", path, limit));
    }
    text.append(block, static_cast<std::size_t>(n));
  }
}

Result<void> WriteFile(const std::string& path, std::string_view text) {
  const std::string temporary = fmt::format("{}.{}.tmp", path, ::getpid());
  Result<void> done;
  {
    Descriptor file(
        ::open(temporary.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0644));
    if (file.Get() < 0) return FailErrno(path);
    done = WriteAll(file.Get(), text, path);
  }
  if (done && ::rename(temporary.c_str(), path.c_str()) != 0) done = FailErrno(path);
  if (!done) {
    ::unlink(temporary.c_str());
    return done;
  }
  const auto folder = std::filesystem::path(path).parent_path();
  Descriptor directory(
      ::open(folder.empty() ? "." : folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  // Some network file systems cannot sync a folder (EINVAL); the rename still holds.
  if (directory.Get() >= 0 && ::fsync(directory.Get()) != 0 && errno != EINVAL)
    return FailErrno(path);
  return {};
}

Result<void> MakeFolder(const std::string& path) {
  std::error_code error;
  std::filesystem::create_directories(path, error);
  if (error) return Fail(fmt::format("{}: {}", path, error.message()), ExitCode::kPreflight);
  return {};
}

std::string Printable(std::string_view text, std::size_t limit) {
  std::string out;
  for (char c : text) {
    if (out.size() >= limit) return out + "...";
    const auto byte = static_cast<unsigned char>(c);
    if (byte < 0x20 || byte == 0x7f) {
      out += fmt::format("\\x{:02x}", byte);
    } else {
      out += c;
    }
  }
  return out;
}

}  // namespace adaptive_train
