// Selection from an arena on the host: what is needed besides Select and Threshold.
#include <algorithm>
#include <bit>
#include <cstring>
#include <type_traits>

#include "kernels/host_device.h"

namespace adaptive_train::kernels {
namespace {

constexpr std::int64_t kLine = 16, kGroup = 256;
/// How many lines ahead to prefetch: the hardware prefetcher cannot predict hashed lines.
constexpr std::int64_t kAhead = 16;

/// The start of the cache line that represents a group.
std::int64_t LineOf(std::int64_t group) {
  const auto hash = static_cast<std::uint64_t>(group) * 0x9e3779b97f4a7c15ULL;
  return group * kGroup + static_cast<std::int64_t>(hash >> 60) * kLine;
}

template <class Sum>
Sum ValueAt(ValueFormat format, const void* values, std::int64_t index) {
  const auto* bytes = static_cast<const std::byte*>(values) + index * BytesOf(format);
  if (format == ValueFormat::kFloat32) {
    float value;
    std::memcpy(&value, bytes, sizeof value);
    return value;
  }
  BFloat16 value;
  std::memcpy(&value, bytes, sizeof value);
  return ToFloat(value);
}

}  // namespace

template <class T>
std::int64_t HostDevice<T>::AddSelected(const AddSelectedArguments<T>& x) {
  std::int64_t taken = 0;
  for (std::int64_t word = 0; 64 * word < x.count; ++word) {
    for (std::uint64_t bits = x.bitmap[word]; bits != 0; bits &= bits - 1)
      x.into[64 * word + std::countr_zero(bits)] +=
          ValueAt<Accumulator<T>>(x.format, x.values, taken++);
  }
  return taken;
}

template <class T>
void HostDevice<T>::Sample(const SampleArguments<T>& x) {
  for (std::int64_t group = 0; group < x.count / kGroup; ++group) {
    const std::int64_t from = LineOf(group), ahead = LineOf(group + kAhead);
    __builtin_prefetch(x.gradients + ahead);
    __builtin_prefetch(x.residuals + ahead);
    for (std::int64_t i = 0; i < kLine; ++i)
      x.sample[group * kLine + i] = x.gradients[from + i] + x.residuals[from + i];
  }
}

template <class T>
double HostDevice<T>::Largest(std::int64_t count, const Accumulator<T>* gradients,
                              const Accumulator<T>* residuals) {
  // Magnitudes compare like their bits, and NaN compares largest.
  using Bits = std::conditional_t<sizeof(Accumulator<T>) == 8, std::uint64_t, std::uint32_t>;
  constexpr Bits kMagnitude = ~Bits{0} >> 1;
  Bits largest = 0;
  for (std::int64_t i = 0; i < count; ++i) {
    const Accumulator<T> e = residuals == nullptr ? gradients[i] : gradients[i] + residuals[i];
    largest = std::max(largest, std::bit_cast<Bits>(e) & kMagnitude);
  }
  return static_cast<double>(std::bit_cast<Accumulator<T>>(largest));
}

#define ADAPTIVE_TRAIN_HOST_SELECTION(T)                                            \
  template std::int64_t HostDevice<T>::AddSelected(const AddSelectedArguments<T>&); \
  template void HostDevice<T>::Sample(const SampleArguments<T>&);                   \
  template double HostDevice<T>::Largest(std::int64_t, const Accumulator<T>*,       \
                                         const Accumulator<T>*);
ADAPTIVE_TRAIN_HOST_SELECTION(float)
ADAPTIVE_TRAIN_HOST_SELECTION(double)
ADAPTIVE_TRAIN_HOST_SELECTION(BFloat16)
ADAPTIVE_TRAIN_HOST_SELECTION(Float16)
#undef ADAPTIVE_TRAIN_HOST_SELECTION

}  // namespace adaptive_train::kernels
