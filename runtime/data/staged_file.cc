// Writes a temporary file, syncs and renames it.
#include "runtime/data/staged_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

namespace adaptive_train {
namespace {

constexpr std::size_t kBufferBytes = std::size_t{1} << 20;

tl::unexpected<Error> FailErrno(const std::string& path) {
  return Fail(fmt::format("{}: {}", path, std::strerror(errno)));
}

}  // namespace

Result<StagedFile> StagedFile::Create(const std::string& path) {
  std::string temporary = fmt::format("{}.{}.tmp", path, ::getpid());
  const int descriptor =
      ::open(temporary.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0644);
  if (descriptor < 0) return FailErrno(path);
  return StagedFile(path, std::move(temporary), descriptor);
}

StagedFile::StagedFile(std::string path, std::string temporary, int descriptor)
    : path_(std::move(path)), temporary_(std::move(temporary)), descriptor_(descriptor) {}

StagedFile::StagedFile(StagedFile&& other) noexcept
    : path_(std::move(other.path_)),
      temporary_(std::exchange(other.temporary_, "")),
      buffer_(std::move(other.buffer_)),
      descriptor_(std::exchange(other.descriptor_, -1)) {}

StagedFile::~StagedFile() {
  if (descriptor_ >= 0) ::close(descriptor_);
  if (!temporary_.empty()) ::unlink(temporary_.c_str());
}

Result<void> StagedFile::Append(std::string_view bytes) {
  buffer_ += bytes;
  return buffer_.size() < kBufferBytes ? Result<void>() : Flush();
}

Result<void> StagedFile::Flush() {
  std::string_view rest = buffer_;
  while (!rest.empty()) {
    const ssize_t written = ::write(descriptor_, rest.data(), rest.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) return FailErrno(path_);
    rest.remove_prefix(static_cast<std::size_t>(written));
  }
  buffer_.clear();
  return {};
}

Result<void> StagedFile::Sync() {
  if (Result<void> flushed = Flush(); !flushed) return flushed;
  if (::fsync(descriptor_) != 0) return FailErrno(path_);
  return {};
}

Result<void> StagedFile::Publish() {
  if (::rename(temporary_.c_str(), path_.c_str()) != 0) return FailErrno(path_);
  temporary_.clear();
  return {};
}

}  // namespace adaptive_train
