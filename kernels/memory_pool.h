// A pool of the host's memory, for arrays that live for a part of a step.
#pragma once

#include <cstddef>
#include <mutex>
#include <new>
#include <utility>
#include <vector>

namespace adaptive_train::kernels {

/// Keeps blocks that are freed, and gives them to whoever next asks for as many bytes. The system
/// would clear every page anew, in a page fault each: .02 s of a step of .16 s, measured on a
/// virtual machine. Blocks in use and kept take at most 5/4 of the most that was ever in use at
/// once; the pool frees those first that have been idle longest. Thread-safe; calls take turns.
class MemoryPool {
 public:
  MemoryPool() = default;
  ~MemoryPool();
  MemoryPool(const MemoryPool&) = delete;
  MemoryPool& operator=(const MemoryPool&) = delete;

  /// The process's pool. It is never destroyed, as static arrays may be freed after it.
  static MemoryPool& Own();

  /// At least `bytes`, whose content is unspecified. Throws AllocationFailure.
  void* Allocate(std::size_t bytes);
  /// `memory` is from Allocate(bytes). Does not throw.
  void Free(void* memory, std::size_t bytes) noexcept;

  /// In use and kept.
  std::size_t bytes() const;

 private:
  struct Block {
    void* memory;
    std::size_t bytes;
  };
  void FreeBeyond(std::size_t most) noexcept;

  mutable std::mutex mutex_;
  std::vector<Block> kept_;  // the longest idle first
  std::size_t used_blocks_ = 0, kept_bytes_ = 0, used_bytes_ = 0, most_used_bytes_ = 0;
};

/// For std::vector: arrays of kLeastBytes and more come from the pool. Elements that are made
/// without a value, as by resize, are not initialized.
template <class T>
struct PoolAllocator {
  using value_type = T;
  static constexpr std::size_t kLeastBytes = std::size_t{64} << 10;

  PoolAllocator() = default;
  template <class U>
  explicit(false) PoolAllocator(const PoolAllocator<U>& /*other*/) {}

  T* allocate(std::size_t count) {
    const std::size_t bytes = count * sizeof(T);
    return static_cast<T*>(bytes < kLeastBytes ? ::operator new(bytes)
                                               : MemoryPool::Own().Allocate(bytes));
  }
  void deallocate(T* memory, std::size_t count) noexcept {
    const std::size_t bytes = count * sizeof(T);
    bytes < kLeastBytes ? ::operator delete(memory) : MemoryPool::Own().Free(memory, bytes);
  }
  template <class U, class... Values>
  void construct(U* place, Values&&... values) {
    if constexpr (sizeof...(Values) == 0) {
      ::new (static_cast<void*>(place)) U;
    } else {
      ::new (static_cast<void*>(place)) U(std::forward<Values>(values)...);
    }
  }
  friend bool operator==(const PoolAllocator&, const PoolAllocator&) { return true; }
};

template <class T>
using PooledVector = std::vector<T, PoolAllocator<T>>;

}  // namespace adaptive_train::kernels
