#include "runtime/checkpoint/checkpoint_snapshot.h"

#include <fmt/format.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "runtime/checkpoint/checkpoint_thread.h"

namespace adaptive_train {
namespace {

std::size_t BytesOf(const ElementRange& range) {
  return static_cast<std::size_t>(range.end - range.begin) * sizeof(float);
}

/// Less than this is not worth a thread.
constexpr std::size_t kBytesPerThread = std::size_t{4} << 20;

}  // namespace

Result<CheckpointSnapshot> CheckpointSnapshot::Allocate(const OwnedRanges& owned) {
  std::size_t size = 0;
  for (const ElementRange& range : owned) size += BytesOf(range);
  if (size == 0) return CheckpointSnapshot(owned, nullptr, 0);
  void* memory = ::mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) {
    return Fail(fmt::format("a checkpoint's snapshot needs {} MB of memory: {}", size / 1'000'000,
                            std::strerror(errno)),
                ExitCode::kRankFailure);
  }
  // Large pages where the system has them: fewer misses in the copy.
  ::madvise(memory, size, MADV_HUGEPAGE);
  auto* bytes = static_cast<std::byte*>(memory);
  const auto page = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
  for (std::size_t at = 0; at < size; at += page)
    *static_cast<volatile std::byte*>(bytes + at) = {};
  return CheckpointSnapshot(owned, bytes, size);
}

CheckpointSnapshot::CheckpointSnapshot(CheckpointSnapshot&& other) noexcept
    : owned_(other.owned_),
      memory_(std::exchange(other.memory_, nullptr)),
      size_(std::exchange(other.size_, 0)) {}

CheckpointSnapshot::~CheckpointSnapshot() {
  if (memory_ != nullptr) ::munmap(memory_, size_);
}

void CheckpointSnapshot::Take(const ConstTrainingArenas& arenas, int threads) {
  // Copies bytes [begin, end) of the snapshot, which may span several arenas.
  const auto copy = [&](std::size_t begin, std::size_t end) {
    std::size_t at = 0;  // where the arena's part begins in the snapshot
    for (std::size_t arena = 0; arena < kTrainingArenas; ++arena) {
      const std::size_t bytes = BytesOf(owned_[arena]);
      const std::size_t from = std::max(begin, at), to = std::min(end, at + bytes);
      if (from < to) {
        const auto source =
            std::as_bytes(arenas[arena])
                .subspan(
                    static_cast<std::size_t>(owned_[arena].begin) * sizeof(float) + (from - at),
                    to - from);
        std::memcpy(memory_ + from, source.data(), source.size());
      }
      at += bytes;
    }
  };
  const std::size_t parts =
      std::min(static_cast<std::size_t>(std::max(threads, 1)), size_ / kBytesPerThread + 1);
  const auto cut = [&](std::size_t part) { return size_ / parts * part; };
  const auto end_of = [&](std::size_t part) { return part + 1 == parts ? size_ : cut(part + 1); };
  const SignalsLeftToOthers signals;
  std::vector<std::thread> others;
  for (std::size_t part = 1; part < parts; ++part) {
    try {
      others.emplace_back(copy, cut(part), end_of(part));
    } catch (const std::system_error&) {  // no more threads: the caller copies it
      copy(cut(part), end_of(part));
    }
  }
  copy(0, end_of(0));
  for (std::thread& other : others) other.join();
}

}  // namespace adaptive_train
