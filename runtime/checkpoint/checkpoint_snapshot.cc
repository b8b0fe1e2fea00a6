#include "runtime/checkpoint/checkpoint_snapshot.h"

#include <fmt/format.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cassert>
#include <cerrno>
#include <cstring>
#include <system_error>
#include <thread>
#include <utility>

#include "runtime/checkpoint/checkpoint_thread.h"

namespace adaptive_train {
namespace {

/// Less than this is not worth a thread.
constexpr std::size_t kBytesPerThread = std::size_t{4} << 20;

/// No bit is set. Ends with the first one that is, and otherwise reads as fast as memory is.
bool IsZero(std::span<const std::byte> bytes) {
  return bytes.empty() || (bytes[0] == std::byte{} &&
                           std::memcmp(bytes.data(), bytes.data() + 1, bytes.size() - 1) == 0);
}

}  // namespace

CheckpointSnapshot::CheckpointSnapshot(const OwnedRanges& owned) {
  for (std::size_t arena = 0; arena < kTrainingArenas; ++arena) {
    if (arena == kResiduals) without_residuals_ = capacity_;
    for (const ElementRange& range : owned[arena]) {
      const std::size_t bytes = static_cast<std::size_t>(range.end - range.begin) * sizeof(float);
      stretches_.push_back(
          {arena, static_cast<std::size_t>(range.begin) * sizeof(float), capacity_, bytes});
      capacity_ += bytes;
    }
  }
}

Result<CheckpointSnapshot> CheckpointSnapshot::Allocate(const OwnedRanges& owned) {
  CheckpointSnapshot snapshot(owned);
  const std::size_t size = snapshot.capacity_;
  if (size == 0) return snapshot;
  void* memory = ::mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) {
    return Fail(fmt::format("a checkpoint's snapshot needs {} MB of memory: {}", size / 1'000'000,
                            std::strerror(errno)),
                ExitCode::kRankFailure);
  }
  snapshot.memory_ = static_cast<std::byte*>(memory);
  // Large pages where the system has them: fewer misses in the copy.
  ::madvise(memory, size, MADV_HUGEPAGE);
  const auto page = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
  for (std::size_t at = 0; at < size; at += page)
    *static_cast<volatile std::byte*>(snapshot.memory_ + at) = {};
  return snapshot;
}

CheckpointSnapshot::CheckpointSnapshot(CheckpointSnapshot&& other) noexcept
    : stretches_(std::move(other.stretches_)),
      capacity_(other.capacity_),
      without_residuals_(other.without_residuals_),
      memory_(std::exchange(other.memory_, nullptr)),
      size_(other.size_) {}

CheckpointSnapshot::~CheckpointSnapshot() {
  if (memory_ != nullptr) ::munmap(memory_, capacity_);
}

/// Copies bytes [begin, end) of the snapshot, in which several stretches may lie.
void CheckpointSnapshot::Copy(const ConstTrainingArenas& arenas, std::size_t begin,
                              std::size_t end) const {
  auto stretch = std::partition_point(stretches_.begin(), stretches_.end(),
                                      [&](const Stretch& s) { return s.to + s.bytes <= begin; });
  for (; stretch != stretches_.end() && stretch->to < end; ++stretch) {
    const auto arena = std::as_bytes(arenas[stretch->arena]);
    assert(stretch->from + stretch->bytes <= arena.size());
    const std::size_t from = std::max(begin, stretch->to);
    const std::size_t to = std::min(end, stretch->to + stretch->bytes);
    const auto source = arena.subspan(stretch->from + (from - stretch->to), to - from);
    arenas.memory->CopyToHost(memory_ + from, source.data(), source.size());
  }
}

void CheckpointSnapshot::Take(const ConstTrainingArenas& arenas, int threads) {
  // Residuals that nobody made room for would be lost.
  assert(arenas[kResiduals].empty() || capacity_ > without_residuals_);
  size_ = arenas[kResiduals].empty() ? without_residuals_ : capacity_;
  if (size_ == 0) return;
  if (!arenas.memory->OnHost()) threads = 1;
  CopyAll(arenas, threads);
  if (IsZero(bytes().subspan(without_residuals_))) size_ = without_residuals_;
}

void CheckpointSnapshot::CopyAll(const ConstTrainingArenas& arenas, int threads) const {
  const std::size_t parts =
      std::min(static_cast<std::size_t>(std::max(threads, 1)), size_ / kBytesPerThread + 1);
  const auto cut = [&](std::size_t part) { return size_ / parts * part; };
  const auto end_of = [&](std::size_t part) { return part + 1 == parts ? size_ : cut(part + 1); };
  const auto copy = [&](std::size_t part) { Copy(arenas, cut(part), end_of(part)); };
  const SignalsLeftToOthers signals;
  std::vector<std::thread> others;
  for (std::size_t part = 1; part < parts; ++part) {
    try {
      others.emplace_back(copy, part);
    } catch (const std::system_error&) {  // no more threads: the caller copies it
      copy(part);
    }
  }
  copy(0);
  for (std::thread& other : others) other.join();
}

}  // namespace adaptive_train
