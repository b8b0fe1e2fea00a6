// Opening and reading a token file, every failure of the system in one line.
#include "runtime/data/token_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cassert>
#include <cerrno>
#include <system_error>
#include <utility>

namespace adaptive_train {
namespace {

std::string Reason(int error) { return std::generic_category().message(error); }

}  // namespace

// O_NONBLOCK: opening a pipe that nobody writes to must not wait; regular files do not know it.
Result<TokenFile> TokenFile::Open(const std::string& key, const std::string& path) {
  const std::string where = key + ": " + path;
  if (path.empty()) return Fail(key + ": no file named; it takes the path of a text file");
  const int descriptor = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (descriptor < 0) return Fail(fmt::format("{}: cannot be opened: {}", where, Reason(errno)));
  TokenFile file(descriptor, 0, where);
  struct stat status {};
  if (::fstat(descriptor, &status) != 0) return Fail(fmt::format("{}: {}", where, Reason(errno)));
  if (!S_ISREG(status.st_mode)) return Fail(fmt::format("{}: not a regular file", where));
  if (status.st_size == 0) return Fail(fmt::format("{}: the file is empty", where));
  file.size_ = status.st_size;
  return file;
}

TokenFile::TokenFile(int descriptor, std::int64_t size, std::string where)
    : descriptor_(descriptor), size_(size), where_(std::move(where)) {}

TokenFile::TokenFile(TokenFile&& other) noexcept
    : descriptor_(std::exchange(other.descriptor_, -1)),
      size_(other.size_),
      where_(std::move(other.where_)) {}

TokenFile& TokenFile::operator=(TokenFile&& other) noexcept {
  std::swap(descriptor_, other.descriptor_);
  std::swap(size_, other.size_);
  std::swap(where_, other.where_);
  return *this;
}

TokenFile::~TokenFile() {
  if (descriptor_ >= 0) ::close(descriptor_);
}

Result<void> TokenFile::Read(std::int64_t first, std::span<std::int32_t> tokens) const {
  assert(first >= 0 && first + static_cast<std::int64_t>(tokens.size()) <= size_);
  std::array<unsigned char, 16384> bytes;
  std::size_t done = 0;
  while (done < tokens.size()) {
    const std::size_t wanted = std::min(bytes.size(), tokens.size() - done);
    const std::int64_t offset = first + static_cast<std::int64_t>(done);
    const ssize_t got = ::pread(descriptor_, bytes.data(), wanted, offset);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0)
      return Fail(fmt::format("{}: reading at byte {} failed: {}", where_, offset, Reason(errno)));
    if (got == 0) {
      return Fail(fmt::format(
          "{}: the file became shorter during the run: it had {} bytes and now ends before byte {}",
          where_, size_, offset));
    }
    std::copy_n(bytes.begin(), got, tokens.begin() + static_cast<std::ptrdiff_t>(done));
    done += static_cast<std::size_t>(got);
  }
  return {};
}

}  // namespace adaptive_train
