// Opens and reads a regular file, and turns every system error into one line.
#include "runtime/data/regular_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cassert>
#include <cerrno>
#include <system_error>
#include <utility>

namespace adaptive_train {
namespace {

std::string Reason(int error) { return std::generic_category().message(error); }

}  // namespace

// O_NONBLOCK: opening a pipe without a writer must not wait; regular files ignore it.
Result<RegularFile> RegularFile::Open(const std::string& path) {
  const int descriptor = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (descriptor < 0) return Fail(fmt::format("{}: cannot be opened: {}", path, Reason(errno)));
  RegularFile file(descriptor, path);
  struct stat status {};
  if (::fstat(descriptor, &status) != 0) return Fail(fmt::format("{}: {}", path, Reason(errno)));
  if (!S_ISREG(status.st_mode)) return Fail(fmt::format("{}: not a regular file", path));
  file.size_ = status.st_size;
  return file;
}

RegularFile::RegularFile(int descriptor, std::string path)
    : descriptor_(descriptor), path_(std::move(path)) {}

RegularFile::RegularFile(RegularFile&& other) noexcept
    : descriptor_(std::exchange(other.descriptor_, -1)),
      size_(other.size_),
      path_(std::move(other.path_)) {}

RegularFile& RegularFile::operator=(RegularFile&& other) noexcept {
  std::swap(descriptor_, other.descriptor_);
  std::swap(size_, other.size_);
  std::swap(path_, other.path_);
  return *this;
}

RegularFile::~RegularFile() {
  if (descriptor_ >= 0) ::close(descriptor_);
}

Result<void> RegularFile::ReadAt(std::int64_t offset, std::span<std::byte> into) const {
  assert(offset >= 0 && static_cast<std::int64_t>(into.size()) <= size_ - offset);
  while (!into.empty()) {
    const ssize_t got = ::pread(descriptor_, into.data(), into.size(), offset);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0)
      return Fail(fmt::format("{}: reading at byte {} failed: {}", path_, offset, Reason(errno)));
    if (got == 0) {
      return Fail(fmt::format(
          "{}: the file became shorter during the run: it had {} bytes and now ends before byte {}",
          path_, size_, offset));
    }
    into = into.subspan(static_cast<std::size_t>(got));
    offset += got;
  }
  return {};
}

}  // namespace adaptive_train
