// Selection and its threshold as plain loops.
#include "kernels/sparsify.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <functional>
#include <limits>
#include <vector>

#include "kernels/reference/reference_device.h"

namespace adaptive_train::kernels::reference {
namespace {

/// If e is not a float, returns the neighbouring float whose last bit is odd (round to odd).
/// Rounding that to fewer bits then gives the same as rounding e itself.
float ToOdd(double e) {
  const auto nearest = static_cast<float>(e);
  const auto bits = std::bit_cast<std::uint32_t>(nearest);
  if (static_cast<double>(nearest) == e || (bits & 1U) != 0 || std::isnan(e)) return nearest;
  const bool below = std::abs(static_cast<double>(nearest)) < std::abs(e);
  return std::bit_cast<float>(below ? bits + 1 : bits - 1);
}

float ToFloat8(float e, double threshold) {
  const int smallest = SmallestSize(threshold);
  const int size = std::clamp(NearestSize(e), smallest, smallest + kFloat8Sizes - 1);
  return std::copysign(std::bit_cast<float>(static_cast<std::uint32_t>(size) << kFloat8Shift), e);
}

/// Stores e, rounded, as values[k]; returns the value as stored.
template <class T, class E>
float Put(E e, const SelectArguments<T>& x, std::int64_t k) {
  if (x.format == ValueFormat::kFloat32) {
    return static_cast<float*>(x.values)[k] = static_cast<float>(e);
  }
  const float odd = ToOdd(e);
  const float rounded = x.format == ValueFormat::kFloat8 ? ToFloat8(odd, x.threshold) : odd;
  return ToFloat(static_cast<BFloat16*>(x.values)[k] = ToBFloat16(rounded));
}

}  // namespace

template <class T>
Selected ReferenceDevice<T>::Select(const SelectArguments<T>& x) {
  Selected selected;
  std::fill(x.bitmap, x.bitmap + (x.count + 63) / 64, 0);
  for (std::int64_t i = 0; i < x.count; ++i) {
    const T old = x.residuals == nullptr ? 0 : x.residuals[i];
    const T e = x.gradients[i] + old;
    T unsent = e;
    selected.finite = selected.finite && std::isfinite(e);
    if (std::abs(static_cast<double>(e)) >= x.threshold) {
      const float value = Put(e, x, selected.count++);
      selected.finite = selected.finite && std::isfinite(value);
      x.bitmap[i / 64] |= std::uint64_t{1} << (i % 64);
      unsent = e - value;
    }
    if (x.residuals != nullptr) x.residuals[i] = unsent - static_cast<T>(1 - x.keep) * old;
  }
  return selected;
}

/// Exactly the wanted-th largest size.
template <class T>
double ReferenceDevice<T>::Threshold(const ThresholdArguments<T>& x) {
  if (x.wanted <= 0) return std::numeric_limits<double>::infinity();
  if (x.wanted >= x.count) return 0;
  std::vector<T> sizes(static_cast<std::size_t>(x.count));
  for (std::int64_t i = 0; i < x.count; ++i) {
    const T e = x.residuals == nullptr ? x.gradients[i] : x.gradients[i] + x.residuals[i];
    sizes[static_cast<std::size_t>(i)] = std::isnan(e) ? 0 : std::abs(e);
  }
  const auto nth = sizes.begin() + (x.wanted - 1);
  std::nth_element(sizes.begin(), nth, sizes.end(), std::greater<>());
  return static_cast<double>(*nth);
}

template Selected ReferenceDevice<float>::Select(const SelectArguments<float>&);
template Selected ReferenceDevice<double>::Select(const SelectArguments<double>&);
template double ReferenceDevice<float>::Threshold(const ThresholdArguments<float>&);
template double ReferenceDevice<double>::Threshold(const ThresholdArguments<double>&);

}  // namespace adaptive_train::kernels::reference
