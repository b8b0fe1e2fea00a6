// Arrays of the host that live for a part of a step, in memory that outlives them.
#pragma once

#include <cstddef>
#include <mutex>
#include <new>
#include <utility>
#include <vector>

namespace adaptive_train::kernels {

/// Blocks of memory that were given back, for whoever next wants as many bytes. The system would
/// clear every page anew, in a page fault each: .02 s of a step of .16 s, measured on a virtual
/// machine. Blocks in use and blocks kept together take at most 5/4 of the most that was ever in
/// use at once; those that lay idle longest go first. Thread-safe; blocks only for that long.
class RecycledMemory {
 public:
  RecycledMemory() = default;
  ~RecycledMemory();
  RecycledMemory(const RecycledMemory&) = delete;
  RecycledMemory& operator=(const RecycledMemory&) = delete;

  /// Of this process; never destroyed, as arrays may outlive what is.
  static RecycledMemory& Own();

  /// At least `bytes`, whose content is unspecified. Throws AllocationFailure.
  void* Take(std::size_t bytes);
  /// Takes back what Take has given for `bytes`.
  void GiveBack(void* memory, std::size_t bytes) noexcept;

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

/// For std::vector: arrays of this size and more are in recycled memory, and elements for which no
/// value is given have none.
template <class T>
struct RecyclingAllocator {
  using value_type = T;
  static constexpr std::size_t kLeastBytes = std::size_t{64} << 10;

  RecyclingAllocator() = default;
  template <class U>
  explicit(false) RecyclingAllocator(const RecyclingAllocator<U>& /*other*/) {}

  T* allocate(std::size_t count) {
    const std::size_t bytes = count * sizeof(T);
    return static_cast<T*>(bytes < kLeastBytes ? ::operator new(bytes)
                                               : RecycledMemory::Own().Take(bytes));
  }
  void deallocate(T* memory, std::size_t count) noexcept {
    const std::size_t bytes = count * sizeof(T);
    bytes < kLeastBytes ? ::operator delete(memory) : RecycledMemory::Own().GiveBack(memory, bytes);
  }
  template <class U, class... Values>
  void construct(U* place, Values&&... values) {
    if constexpr (sizeof...(Values) == 0) {
      ::new (static_cast<void*>(place)) U;
    } else {
      ::new (static_cast<void*>(place)) U(std::forward<Values>(values)...);
    }
  }
  friend bool operator==(const RecyclingAllocator&, const RecyclingAllocator&) { return true; }
};

template <class T>
using RecycledVector = std::vector<T, RecyclingAllocator<T>>;

}  // namespace adaptive_train::kernels
