// Device memory, and the owner of a piece of it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <type_traits>
#include <utility>

namespace adaptive_train::kernels {

/// The memory that a device's operations read and write. Not thread-safe.
class DeviceMemory {
 public:
  virtual ~DeviceMemory() = default;
  /// Returns uninitialised memory, aligned to 64 bytes, or nullptr for 0 bytes; throws
  /// std::bad_alloc. `sparse` memory has small pages: parts of it will be released or never
  /// touched.
  virtual void* Allocate(std::size_t bytes, bool sparse) = 0;
  virtual void Free(void* memory) noexcept = 0;
  /// Copies and clearing run in order with the device's operations. CopyToHost returns when the
  /// bytes are there; the source of CopyFromHost may be reused on return.
  virtual void CopyFromHost(void* to, const void* from, std::size_t bytes) = 0;
  virtual void CopyToHost(void* to, const void* from, std::size_t bytes) = 0;
  /// to[i] = from[places[i]], with `to` and `places` in host memory. Returns when the values are
  /// there.
  virtual void GatherToHost(std::span<float> to, const float* from,
                            std::span<const std::size_t> places) = 0;
  virtual void CopyWithin(void* to, const void* from, std::size_t bytes) = 0;
  virtual void Clear(void* memory, std::size_t bytes) = 0;
  /// Like Clear, for memory that will not be used soon: where the device can, whole pages return to
  /// the system until they are touched again.
  virtual void Release(void* memory, std::size_t bytes) = 0;
  /// Whether it is host memory: the host may read and write it itself, and several threads may copy
  /// at once. host_access.h has what the host does with memory of either kind.
  virtual bool OnHost() const = 0;
  /// Returns when all operations and copies so far are done.
  virtual void Wait() = 0;
  /// The bytes of memory of its own that nobody has. None: it has none apart from the host's, whose
  /// free bytes core/free_memory.h tells.
  virtual std::optional<std::int64_t> FreeBytes() const = 0;
};

/// Owns `size` elements in a device's memory, uninitialised at first. Movable; must not outlive the
/// memory it came from.
template <class E>
class Buffer {
  static_assert(std::is_trivially_copyable_v<E>);

 public:
  Buffer() = default;
  Buffer(DeviceMemory& memory, std::size_t size, bool sparse = false)
      : memory_(&memory),
        data_(static_cast<E*>(memory.Allocate(size * sizeof(E), sparse))),
        size_(size) {}
  Buffer(Buffer&& other) noexcept { *this = std::move(other); }
  Buffer& operator=(Buffer&& other) noexcept {
    std::swap(memory_, other.memory_);
    std::swap(data_, other.data_);
    std::swap(size_, other.size_);
    return *this;
  }
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;
  ~Buffer() {
    if (data_ != nullptr) memory_->Free(data_);
  }

  E* data() { return data_; }
  const E* data() const { return data_; }
  std::size_t size() const { return size_; }
  std::size_t bytes() const { return size_ * sizeof(E); }
  /// Usable on the host only if the device's memory is OnHost.
  std::span<E> span() { return {data_, size_}; }
  std::span<const E> span() const { return {data_, size_}; }

  void Clear() {
    if (size_ > 0) memory_->Clear(data_, bytes());
  }
  /// Releases elements [begin, end).
  void Release(std::size_t begin, std::size_t end) {
    if (begin < end) memory_->Release(data_ + begin, (end - begin) * sizeof(E));
  }
  /// Fills the first host.size() elements.
  void CopyFromHost(std::span<const E> host) {
    if (!host.empty()) memory_->CopyFromHost(data_, host.data(), host.size_bytes());
  }
  /// Reads the first host.size() elements.
  void CopyToHost(std::span<E> host) const {
    if (!host.empty()) memory_->CopyToHost(host.data(), data_, host.size_bytes());
  }

 private:
  DeviceMemory* memory_ = nullptr;
  E* data_ = nullptr;
  std::size_t size_ = 0;
};

}  // namespace adaptive_train::kernels
