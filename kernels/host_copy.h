// Arrays that are in a device's memory and in the host's: what ranks send each other.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <vector>

#include "kernels/buffer.h"

namespace adaptive_train::kernels {

/// The host's copy of a device's array, which other ranks are sent, or send. In host memory it is the
/// array itself, and nothing is copied. Movable; must not outlive the array. Not thread-safe.
template <class E>
class HostCopy {
 public:
  HostCopy() = default;
  /// Undefined at first. Throws std::bad_alloc.
  HostCopy(DeviceMemory& memory, std::span<E> array) : memory_(&memory), array_(array) {
    if (!memory.OnHost()) copy_ = std::make_unique_for_overwrite<E[]>(array.size());
  }

  // Of the whole array, or of a part of it.

  /// The copy.
  std::span<E> Of() const { return Of(array_); }
  std::span<E> Of(std::span<E> part) const {
    return copy_ ? std::span(copy_.get() + (part.data() - array_.data()), part.size()) : part;
  }
  /// Makes the copy what the device has. Blocks until it is, and gives it.
  std::span<E> Fetch() const { return Fetch(array_); }
  std::span<E> Fetch(std::span<E> part) const {
    if (copy_) memory_->CopyToHost(Of(part).data(), part.data(), part.size_bytes());
    return Of(part);
  }
  /// Makes what the device has that of the copy.
  void Store() const { Store(array_); }
  void Store(std::span<E> part) const {
    if (copy_) memory_->CopyFromHost(part.data(), Of(part).data(), part.size_bytes());
  }

 private:
  DeviceMemory* memory_ = nullptr;
  std::span<E> array_;
  std::unique_ptr<E[]> copy_;  // none in host memory
};

/// The host's copies of parts that ranks gather, each of which has one. Movable; must not outlive the
/// parts. Not thread-safe.
class GatheredParts {
 public:
  GatheredParts() = default;
  /// The copy of the own part is what the device has; the others are undefined. Throws std::bad_alloc.
  GatheredParts(DeviceMemory& memory, const std::vector<std::span<std::byte>>& parts, int own)
      : own_(static_cast<std::size_t>(own)) {
    for (const std::span<std::byte> part : parts) copies_.emplace_back(memory, part);
    copies_[own_].Fetch();
  }

  std::vector<std::span<std::byte>> Copies() const {
    std::vector<std::span<std::byte>> copies;
    for (const auto& copy : copies_) copies.push_back(copy.Of());
    return copies;
  }
  /// Makes what the device has of the others' parts that of the copies.
  void Store() const {
    for (std::size_t i = 0; i < copies_.size(); ++i)
      if (i != own_) copies_[i].Store();
  }

 private:
  std::vector<HostCopy<std::byte>> copies_;
  std::size_t own_ = 0;
};

/// An array for a device to write and the host to read, as long as the longest so far. Not
/// thread-safe.
template <class E>
class CopiedArray {
 public:
  /// What the arrays hold is lost where they have to grow. Throws std::bad_alloc.
  void Hold(DeviceMemory& memory, std::size_t size) {
    if (size <= buffer_.size()) return;
    copy_ = {};
    buffer_ = {};
    buffer_ = {memory, size};
    copy_ = {memory, buffer_.span()};
  }
  /// In the device's memory.
  E* data() { return buffer_.data(); }
  /// `size` elements of the host's copy.
  std::span<E> Host(std::size_t begin, std::size_t size) {
    return copy_.Of(buffer_.span().subspan(begin, size));
  }
  /// The same, as the device has written them. Blocks until they are there.
  std::span<E> Fetch(std::size_t begin, std::size_t size) {
    return copy_.Fetch(buffer_.span().subspan(begin, size));
  }

 private:
  Buffer<E> buffer_;
  HostCopy<E> copy_;
};

/// What the host has made, for a device to read. Not thread-safe.
template <class E>
class DeviceCopy {
 public:
  /// Where the device has these elements, until the next call; the host's own array where it can read
  /// that. Throws std::bad_alloc.
  const E* Of(DeviceMemory& memory, std::span<const E> array) {
    if (memory.OnHost()) return array.data();
    if (array.size() > buffer_.size()) buffer_ = {memory, array.size()};
    buffer_.CopyFromHost(array);
    return buffer_.data();
  }

 private:
  Buffer<E> buffer_;
};

}  // namespace adaptive_train::kernels
