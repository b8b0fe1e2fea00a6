#include "runtime/checkpoint/checkpoint_files.h"

#include <dirent.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <memory>
#include <utility>

#include "core/file_io.h"
#include "runtime/checkpoint/checkpoint_format.h"

namespace adaptive_train {
namespace {

/// A new file, written past the page cache where memory, place and file system allow it: that
/// takes a quarter of the processor time, and leaves others' files in the cache.
class NewFile {
 public:
  explicit NewFile(const std::string& path) {
    constexpr int kFlags = O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW;
    fd_ = ::open(path.c_str(), kFlags | O_DIRECT, 0644);
    direct_ = fd_ >= 0;
    if (fd_ >= 0 || errno != EINVAL) return;
    ::unlink(path.c_str());  // some file systems refuse O_DIRECT when the file is there already
    fd_ = ::open(path.c_str(), kFlags, 0644);
  }
  ~NewFile() {
    if (fd_ >= 0) ::close(fd_);
  }
  NewFile(const NewFile&) = delete;
  NewFile& operator=(const NewFile&) = delete;

  bool IsOpen() const { return fd_ >= 0; }
  /// Appends; false with errno where it fails.
  bool Append(std::span<const std::byte> bytes) {
    const std::size_t appended = bytes.size();
    while (!bytes.empty()) {
      if (direct_ && bytes.size() < kSector) WriteThroughCache();
      const auto piece = direct_ ? bytes.first(bytes.size() / kSector * kSector) : bytes;
      const ssize_t n = ::write(fd_, piece.data(), piece.size());
      if (n > 0) bytes = bytes.subspan(static_cast<std::size_t>(n));
      if (n >= 0 || errno == EINTR) continue;
      if (!direct_ || errno != EINVAL) return false;
      WriteThroughCache();  // sectors are larger here, or a write was cut short within one
    }
    // Starts the disk on it, so that the sync at the end has little left. A hint: where a file
    // system does not know it, the sync does all.
    if (!direct_)
      ::sync_file_range(fd_, size_, static_cast<off_t>(appended), SYNC_FILE_RANGE_WRITE);
    size_ += static_cast<off_t>(appended);
    unsynced_ = direct_ ? 0 : unsynced_ + appended;
    if (unsynced_ < kMostUnsynced) return true;
    unsynced_ = 0;
    return ::fdatasync(fd_) == 0;
  }
  /// Makes the content last, and closes; false with errno where it fails.
  bool Finish() {
    if (::fsync(fd_) != 0) return false;
    ::posix_fadvise(fd_, 0, 0, POSIX_FADV_DONTNEED);
    return ::close(std::exchange(fd_, -1)) == 0;
  }

 private:
  /// What direct writes' memory, length and place must be multiples of nearly everywhere.
  static constexpr std::size_t kSector = 4096;
  /// Who waits for the file sees it grow, so it must grow on disk and not in the cache alone.
  static constexpr std::size_t kMostUnsynced = std::size_t{64} << 20;

  void WriteThroughCache() {
    ::fcntl(fd_, F_SETFL, ::fcntl(fd_, F_GETFL) & ~O_DIRECT);
    direct_ = false;
  }

  int fd_;
  bool direct_;
  off_t size_ = 0;
  std::size_t unsynced_ = 0;
};

using Directory = std::unique_ptr<DIR, int (*)(DIR*)>;

Directory OpenDirectory(const std::string& path) {
  const int fd = ::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd < 0) return {nullptr, ::closedir};
  DIR* directory = ::fdopendir(fd);
  if (directory == nullptr) ::close(fd);
  return {directory, ::closedir};
}

}  // namespace

tl::unexpected<Error> FailAt(const std::string& path, const std::string& why, int system_error) {
  return Fail(path + ": " + why, ExitCode::kRankFailure, system_error);
}

tl::unexpected<Error> FailErrno(const std::string& path) {
  const int error = errno;
  return FailAt(path, std::strerror(error), error);
}

Result<std::string> ReadCheckpointText(const std::string& path) {
  auto text = ReadFile(path, kMaxCheckpointJsonBytes);
  if (!text) text.error().exit_code = ExitCode::kRankFailure;
  return text;
}

Result<void> WriteCheckpointText(const std::string& path, std::string_view text) {
  auto done = WriteFile(path, text);
  if (!done) done.error().exit_code = ExitCode::kRankFailure;
  return done;
}

Result<std::vector<std::uint64_t>> WriteBlocks(const std::string& path,
                                               std::span<const std::byte> bytes,
                                               const std::function<bool()>& stop) {
  const std::string temporary = path + ".tmp";
  // A writer that was killed may have left one; O_EXCL then sees to it that the file is ours.
  if (::unlink(temporary.c_str()) != 0 && errno != ENOENT) return FailErrno(temporary);
  NewFile file(temporary);
  if (!file.IsOpen()) return FailErrno(path);
  Result<std::vector<std::uint64_t>> hashes;
  while (hashes && !bytes.empty()) {
    const auto block = bytes.first(std::min<std::size_t>(bytes.size(), kCheckpointBlockBytes));
    hashes->push_back(HashOf(block));
    if (!file.Append(block)) hashes = FailErrno(path);
    if (stop()) hashes = FailAt(path, "not finished, the program stops");
    bytes = bytes.subspan(block.size());
  }
  if (hashes && !file.Finish()) hashes = FailErrno(path);
  if (hashes && ::rename(temporary.c_str(), path.c_str()) != 0) hashes = FailErrno(path);
  if (!hashes) {
    ::unlink(temporary.c_str());
    return hashes;
  }
  auto synced = SyncFolder(path.substr(0, path.rfind('/')));
  if (!synced) return tl::unexpected(synced.error());
  return hashes;
}

Result<void> SyncFolder(const std::string& path) {
  const int fd = ::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd < 0) return FailErrno(path);
  const int error = ::fsync(fd) != 0 ? errno : 0;
  ::close(fd);
  if (error != 0 && error != EINVAL) return FailAt(path, std::strerror(error), error);
  return {};
}

Result<void> MakeOwnFolder(const std::string& path) {
  if (::mkdir(path.c_str(), 0755) == 0) return {};
  if (errno != EEXIST) return FailErrno(path);
  struct stat info {};
  if (::lstat(path.c_str(), &info) != 0) return FailErrno(path);
  if (!S_ISDIR(info.st_mode)) return FailAt(path, "is there already and is not a folder");
  return {};
}

bool IsOwnFolder(const std::string& path) {
  struct stat info {};
  return ::lstat(path.c_str(), &info) == 0 && S_ISDIR(info.st_mode);
}

Result<void> RemoveFlatFolder(const std::string& path) {
  auto names = NamesIn(path);
  if (!names) return tl::unexpected(names.error());
  for (const std::string& name : *names) {
    const std::string file = path + "/" + name;
    if (::unlink(file.c_str()) != 0 && errno != ENOENT) return FailErrno(file);
  }
  if (::rmdir(path.c_str()) != 0 && errno != ENOENT) return FailErrno(path);
  return {};
}

Result<std::vector<std::string>> NamesIn(const std::string& path) {
  const Directory directory = OpenDirectory(path);
  std::vector<std::string> names;
  if (directory == nullptr) {
    if (errno == ENOENT) return names;
    return FailErrno(path);
  }
  errno = 0;
  while (const dirent* entry = ::readdir(directory.get())) {
    const std::string name = entry->d_name;
    if (name != "." && name != "..") names.push_back(name);
  }
  if (errno != 0) return FailErrno(path);
  std::sort(names.begin(), names.end());
  return names;
}

Result<std::int64_t> SizeOfFile(const std::string& path) {
  struct stat info {};
  if (::lstat(path.c_str(), &info) != 0) return FailErrno(path);
  if (!S_ISREG(info.st_mode)) return FailAt(path, "not a regular file");
  return static_cast<std::int64_t>(info.st_size);
}

Result<BlockReader> BlockReader::Open(const std::string& path, std::int64_t bytes,
                                      std::span<const std::uint64_t> hashes) {
  // O_NONBLOCK: opening a FIFO must not hang.
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
  if (fd < 0) return FailErrno(path);
  BlockReader reader(path, fd, bytes, hashes);
  struct stat info {};
  if (::fstat(fd, &info) != 0) return FailErrno(path);
  if (!S_ISREG(info.st_mode)) return FailAt(path, "not a regular file");
  if (info.st_size != bytes)
    return FailAt(path, fmt::format("{} bytes, the manifest says {}", info.st_size, bytes));
  return reader;
}

BlockReader::BlockReader(std::string path, int fd, std::int64_t bytes,
                         std::span<const std::uint64_t> hashes)
    : path_(std::move(path)), fd_(fd), bytes_(bytes), hashes_(hashes) {}

BlockReader::BlockReader(BlockReader&& other) noexcept
    : path_(std::move(other.path_)),
      fd_(std::exchange(other.fd_, -1)),
      bytes_(other.bytes_),
      hashes_(other.hashes_),
      block_(std::move(other.block_)) {}

BlockReader::~BlockReader() {
  if (fd_ >= 0) ::close(fd_);
}

Result<std::span<const std::byte>> BlockReader::Read(std::size_t block) {
  const std::int64_t begin = static_cast<std::int64_t>(block) * kCheckpointBlockBytes;
  block_.resize(
      static_cast<std::size_t>(std::min<std::int64_t>(kCheckpointBlockBytes, bytes_ - begin)));
  for (std::size_t done = 0; done < block_.size();) {
    const ssize_t n = ::pread(fd_, block_.data() + done, block_.size() - done,
                              begin + static_cast<std::int64_t>(done));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return FailErrno(path_);
    if (n == 0) return FailAt(path_, "became shorter while it was read");
    done += static_cast<std::size_t>(n);
  }
  if (HashOf(block_) != hashes_[block]) {
    return FailAt(path_, fmt::format("bytes [{}, {}) do not fit their hash", begin,
                                     begin + static_cast<std::int64_t>(block_.size())));
  }
  return std::span<const std::byte>(block_);
}

}  // namespace adaptive_train
