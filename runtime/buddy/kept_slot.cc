#include "runtime/buddy/kept_slot.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cassert>
#include <cerrno>
#include <cstring>
#include <utility>

#include "runtime/checkpoint/checkpoint_files.h"

namespace adaptive_train {
namespace {

constexpr char kMark[] = "adaptive-train: a kept state\n";
static_assert(sizeof kMark <= kKeptMarkBytes);
constexpr std::size_t kPage = 4096;

struct Descriptor {
  int number;
  explicit Descriptor(int opened) : number(opened) {}
  ~Descriptor() {
    if (number >= 0) ::close(number);
  }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
};

bool IsMarked(std::span<const std::byte> all) {
  return all.size() >= kKeptMarkBytes && std::memcmp(all.data(), kMark, sizeof kMark) == 0;
}

}  // namespace

std::size_t KeptHeaderBytes(std::size_t text_bytes) {
  const std::size_t bytes = kKeptMarkBytes + text_bytes + text_bytes / 4 + kKeptSpareBytes;
  return (bytes + kPage - 1) / kPage * kPage;
}

Result<KeptSlot> KeptSlot::Make(const std::string& path, std::size_t header_bytes,
                                std::size_t bytes) {
  assert(header_bytes >= kKeptMarkBytes);
  ::unlink(path.c_str());
  const Descriptor file(
      ::open(path.c_str(), O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600));
  if (file.number < 0) return FailErrno(path);
  const std::size_t size = header_bytes + bytes;
  const int error = ::posix_fallocate(file.number, 0, static_cast<off_t>(size));
  void* memory = MAP_FAILED;
  if (error == 0) {
    memory =
        ::mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, file.number, 0);
    if (memory != MAP_FAILED)
      return KeptSlot(path, header_bytes, {static_cast<std::byte*>(memory), size});
  }
  auto failed = FailAt(path, std::strerror(error != 0 ? error : errno));
  ::unlink(path.c_str());
  return failed;
}

KeptSlot::KeptSlot(KeptSlot&& other) noexcept
    : path_(std::move(other.path_)),
      header_bytes_(other.header_bytes_),
      memory_(std::exchange(other.memory_, {})) {}

KeptSlot& KeptSlot::operator=(KeptSlot&& other) noexcept {
  std::swap(path_, other.path_);
  std::swap(header_bytes_, other.header_bytes_);
  std::swap(memory_, other.memory_);
  return *this;
}

KeptSlot::~KeptSlot() {
  if (!memory_.empty()) ::munmap(memory_.data(), memory_.size());
}

// A process that is killed leaves what it has stored so far in the order of its stores.
void KeptSlot::Begin() {
  std::memset(memory_.data(), 0, kKeptMarkBytes);
  std::atomic_signal_fence(std::memory_order_seq_cst);
}

bool KeptSlot::SetText(std::string_view text) {
  const std::size_t room = header_bytes_ - kKeptMarkBytes;
  if (text.size() > room) return false;
  std::memcpy(message().data(), text.data(), text.size());
  std::memset(message().data() + text.size(), 0, room - text.size());
  return true;
}

void KeptSlot::Complete() {
  std::atomic_thread_fence(std::memory_order_seq_cst);
  std::memcpy(memory_.data(), kMark, sizeof kMark);
}

Result<KeptFile> KeptFile::Open(const std::string& path) {
  // O_NONBLOCK: opening a FIFO must not hang.
  const Descriptor file(::open(path.c_str(), O_RDONLY | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK));
  struct stat info {};
  if (file.number < 0 || ::fstat(file.number, &info) != 0) return FailErrno(path);
  const auto size = static_cast<std::size_t>(info.st_size);
  if (!S_ISREG(info.st_mode) || size < kKeptMarkBytes) return FailAt(path, "is no kept state");
  void* memory = ::mmap(nullptr, size, PROT_READ, MAP_SHARED, file.number, 0);
  if (memory == MAP_FAILED) return FailErrno(path);
  KeptFile kept({static_cast<const std::byte*>(memory), size});
  if (!IsMarked(kept.memory_)) return FailAt(path, "is not whole");
  kept.header_bytes_ = size;
  const std::string_view words = kept.text();
  auto entry = ParseKeptEntry(words.substr(0, words.find('\n')), path);
  if (!entry) return tl::unexpected(entry.error());
  const auto header = static_cast<std::size_t>(entry->header_bytes);
  if (header < kKeptMarkBytes || header > size) return FailAt(path, "is shorter than its words");
  kept.header_bytes_ = header;
  auto shard = ParseKeptShard(kept.text(), path);
  if (!shard) return tl::unexpected(shard.error());
  if (static_cast<std::size_t>(shard->index.Bytes()) != size - header)
    return FailAt(path, "is not as long as its words say");
  return kept;
}

KeptFile::KeptFile(KeptFile&& other) noexcept
    : memory_(std::exchange(other.memory_, {})), header_bytes_(other.header_bytes_) {}

KeptFile& KeptFile::operator=(KeptFile&& other) noexcept {
  std::swap(memory_, other.memory_);
  std::swap(header_bytes_, other.header_bytes_);
  return *this;
}

KeptFile::~KeptFile() {
  // The mapping was made by mmap, which knows no const.
  if (!memory_.empty()) ::munmap(const_cast<std::byte*>(memory_.data()), memory_.size());
}

std::string_view KeptFile::text() const {
  const auto words = memory_.subspan(kKeptMarkBytes, header_bytes_ - kKeptMarkBytes);
  return {reinterpret_cast<const char*>(words.data()), words.size()};
}

std::span<const std::byte> KeptFile::Block(std::size_t block) const {
  const std::size_t begin = block * static_cast<std::size_t>(kCheckpointBlockBytes);
  return content().subspan(
      begin, std::min(static_cast<std::size_t>(kCheckpointBlockBytes), content().size() - begin));
}

std::vector<KeptEntry> WholeParts(const std::string& folder, std::int64_t attempt) {
  std::vector<KeptEntry> whole;
  const auto names = NamesIn(folder);
  if (!names) return whole;
  for (const std::string& name : *names) {
    const auto named = KeptEntry::OfFileName(name);
    if (!named || named->attempt >= attempt) continue;
    const auto file = KeptFile::Open(folder + "/" + name);
    if (!file) continue;
    const auto shard = ParseKeptShard(file->text(), name);
    if (shard && shard->entry.FileName() == name) whole.push_back(shard->entry);
  }
  return whole;
}

void RemoveKept(const std::string& folder, const std::function<bool(const KeptEntry&)>& goes) {
  const auto names = NamesIn(folder);
  if (!names) return;
  for (const std::string& name : *names) {
    const auto entry = KeptEntry::OfFileName(name);
    if (entry && goes(*entry)) ::unlink((folder + "/" + name).c_str());
  }
}

}  // namespace adaptive_train
