#include "kernels/memory_pool.h"

#include <sanitizer/asan_interface.h>

#include <algorithm>
#include <bit>
#include <iterator>

#include "kernels/host_memory.h"

namespace adaptive_train::kernels {
namespace {

/// Arrays of nearly one length share blocks: there are four sizes of them between powers of two.
std::size_t BlockBytes(std::size_t bytes) {
  const std::size_t step = std::bit_floor(std::max<std::size_t>(bytes, 4)) / 4;
  return (bytes + step - 1) / step * step;
}

}  // namespace

MemoryPool& MemoryPool::Own() {
  static auto* const own = new MemoryPool;
  return *own;
}

MemoryPool::~MemoryPool() { FreeBeyond(0); }

void* MemoryPool::Allocate(std::size_t bytes) {
  const std::size_t size = BlockBytes(bytes);
  const std::lock_guard lock(mutex_);
  kept_.reserve(kept_.size() + used_blocks_ + 1);  // giving back does not allocate
  const auto fits = std::find_if(kept_.rbegin(), kept_.rend(),
                                 [size](const Block& block) { return block.bytes == size; });
  void* memory = nullptr;
  if (fits != kept_.rend()) {
    memory = fits->memory;  // the last one used: it may be in a cache still
    kept_.erase(std::next(fits).base());
    kept_bytes_ -= size;
  } else {
    const std::size_t most = std::max(most_used_bytes_, used_bytes_ + size);
    FreeBeyond(most + most / 4 - size);
    memory = AllocatePages(size, false);
  }
  ASAN_UNPOISON_MEMORY_REGION(memory, bytes);
  ++used_blocks_;
  used_bytes_ += size;
  most_used_bytes_ = std::max(most_used_bytes_, used_bytes_);
  return memory;
}

void MemoryPool::Free(void* memory, std::size_t bytes) noexcept {
  const std::size_t size = BlockBytes(bytes);
  const std::lock_guard lock(mutex_);
  ASAN_POISON_MEMORY_REGION(memory, size);  // nobody may read what was freed
  kept_.push_back({memory, size});
  --used_blocks_;
  kept_bytes_ += size;
  used_bytes_ -= size;
}

std::size_t MemoryPool::bytes() const {
  const std::lock_guard lock(mutex_);
  return used_bytes_ + kept_bytes_;
}

/// Blocks in use are not freed, whatever `most` says.
void MemoryPool::FreeBeyond(std::size_t most) noexcept {
  auto oldest = kept_.begin();
  for (; oldest != kept_.end() && used_bytes_ + kept_bytes_ > most; ++oldest) {
    ASAN_UNPOISON_MEMORY_REGION(oldest->memory, oldest->bytes);
    FreePages(oldest->memory);
    kept_bytes_ -= oldest->bytes;
  }
  kept_.erase(kept_.begin(), oldest);
}

}  // namespace adaptive_train::kernels
