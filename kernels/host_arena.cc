// kernels/arena.h on the host: loops that are bound by memory bandwidth.
#include <xxhash.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <span>

#include "kernels/host_device.h"

namespace adaptive_train::kernels {
namespace {

constexpr float kLargest = 127;

template <class Sum>
void PackBlock(std::span<const Sum> values, std::byte* out) {
  float largest = 0;
  bool finite = true;
  for (const Sum value : values) {
    largest = std::max(largest, std::abs(static_cast<float>(value)));
    finite &= std::isfinite(value);
  }
  const float scale = finite ? largest / kLargest : std::numeric_limits<float>::quiet_NaN();
  // The scale of tiny values may be 0 or subnormal; their steps are then 0.
  const float times = finite && scale >= std::numeric_limits<float>::min() ? 1 / scale : 0;
  std::memcpy(out, &scale, sizeof scale);
  out += sizeof scale;
  for (const Sum value : values) {
    const float steps =
        finite ? std::clamp(static_cast<float>(value) * times, -kLargest, kLargest) : 0;
    *out++ = static_cast<std::byte>(static_cast<std::int8_t>(std::lrintf(steps)));
  }
}

template <class T>
void UnpackBlock(const std::byte* in, std::span<T> values) {
  float scale;
  std::memcpy(&scale, in, sizeof scale);
  in += sizeof scale;
  for (T& value : values)
    value = Rounded<T>(scale * static_cast<float>(static_cast<std::int8_t>(*in++)));
}

/// Calls visit(begin, size) for each block of `count` values.
template <class Visit>
void ForEachBlock(std::int64_t count, const Visit& visit) {
  const auto all = static_cast<std::size_t>(count);
  for (std::size_t begin = 0; begin < all; begin += kInt8Block)
    visit(begin, std::min(kInt8Block, all - begin));
}

}  // namespace

template <class T>
void HostDevice<T>::AddInto(std::int64_t count, const Accumulator<T>* from, Accumulator<T>* into) {
  for (std::int64_t i = 0; i < count; ++i) into[i] += from[i];
}

template <class T>
void HostDevice<T>::AddDifference(std::int64_t count, const Accumulator<T>* more,
                                  const Accumulator<T>* less, Accumulator<T>* into) {
  for (std::int64_t i = 0; i < count; ++i) into[i] += more[i] - less[i];
}

template <class T>
void HostDevice<T>::Scale(std::int64_t count, Accumulator<T> factor, Accumulator<T>* values) {
  for (std::int64_t i = 0; i < count; ++i) values[i] *= factor;
}

template <class T>
void HostDevice<T>::ClearNotFinite(std::int64_t count, Accumulator<T>* values) {
  for (std::int64_t i = 0; i < count; ++i) values[i] = std::isfinite(values[i]) ? values[i] : 0;
}

template <class T>
std::uint64_t HostDevice<T>::Hash(const void* memory, std::size_t bytes) {
  return XXH3_64bits(memory, bytes);
}

template <class T>
void HostDevice<T>::PackInt8(std::int64_t count, const Accumulator<T>* values, std::byte* packed) {
  ForEachBlock(count, [&](std::size_t begin, std::size_t size) {
    PackBlock(std::span(values + begin, size), packed);
    packed += Int8Bytes(size);
  });
}

template <class T>
void HostDevice<T>::UnpackInt8(std::int64_t count, const std::byte* packed, T* values) {
  ForEachBlock(count, [&](std::size_t begin, std::size_t size) {
    UnpackBlock(packed, std::span(values + begin, size));
    packed += Int8Bytes(size);
  });
}

#define ADAPTIVE_TRAIN_HOST_ARENA(T)                                                          \
  template void HostDevice<T>::AddInto(std::int64_t, const Accumulator<T>*, Accumulator<T>*); \
  template void HostDevice<T>::AddDifference(std::int64_t, const Accumulator<T>*,             \
                                             const Accumulator<T>*, Accumulator<T>*);         \
  template void HostDevice<T>::Scale(std::int64_t, Accumulator<T>, Accumulator<T>*);          \
  template void HostDevice<T>::ClearNotFinite(std::int64_t, Accumulator<T>*);                 \
  template std::uint64_t HostDevice<T>::Hash(const void*, std::size_t);                       \
  template void HostDevice<T>::PackInt8(std::int64_t, const Accumulator<T>*, std::byte*);     \
  template void HostDevice<T>::UnpackInt8(std::int64_t, const std::byte*, T*);
ADAPTIVE_TRAIN_HOST_ARENA(float)
ADAPTIVE_TRAIN_HOST_ARENA(double)
ADAPTIVE_TRAIN_HOST_ARENA(BFloat16)
ADAPTIVE_TRAIN_HOST_ARENA(Float16)
#undef ADAPTIVE_TRAIN_HOST_ARENA

}  // namespace adaptive_train::kernels
