#include "runtime/checkpoint/checkpoint_snapshot.h"

#include <fmt/format.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cassert>
#include <cerrno>
#include <cstring>
#include <utility>

namespace adaptive_train {
namespace {

/// No bit is set. Ends with the first one that is, and otherwise reads as fast as memory is.
bool IsZero(std::span<const std::byte> bytes) {
  return bytes.empty() || (bytes[0] == std::byte{} &&
                           std::memcmp(bytes.data(), bytes.data() + 1, bytes.size() - 1) == 0);
}

}  // namespace

Result<CheckpointSnapshot> CheckpointSnapshot::Allocate(const OwnedRanges& owned) {
  CheckpointSnapshot snapshot(owned);
  const std::size_t size = snapshot.capacity();
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
    : copy_(std::move(other.copy_)),
      memory_(std::exchange(other.memory_, nullptr)),
      size_(other.size_) {}

CheckpointSnapshot::~CheckpointSnapshot() {
  if (memory_ != nullptr) ::munmap(memory_, capacity());
}

void CheckpointSnapshot::Take(const ConstTrainingArenas& arenas, int threads) {
  const std::size_t without_residuals = copy_.bytes_before_residuals();
  // Residuals that nobody made room for would be lost.
  assert(arenas[kResiduals].empty() || capacity() > without_residuals);
  size_ = arenas[kResiduals].empty() ? without_residuals : capacity();
  copy_.Copy(arenas, memory_, size_, threads);
  if (size_ > 0 && IsZero(bytes().subspan(without_residuals))) size_ = without_residuals;
}

}  // namespace adaptive_train
