// Test data in double, and conversions to and from a device's scalars.
#pragma once

#include <cmath>
#include <cstdint>
#include <vector>

#include "core/counter_random.h"
#include "kernels/device.h"

namespace adaptive_train::kernels {

using Array = std::vector<double>;
using Arrays = std::vector<Array>;

/// Standard normal numbers; each `which` gives other numbers.
inline Array RandomArray(std::int64_t count, std::uint32_t which) {
  const CounterRandom random(7, RandomPurpose::kInitialization);
  Array values(static_cast<std::size_t>(count));
  for (std::size_t i = 0; i < values.size(); ++i) {
    values[i] = random.Normal({.step = which, .element = i});
  }
  return values;
}

inline std::vector<std::int32_t> RandomTokens(std::int64_t count, std::int64_t vocab) {
  const CounterRandom random(8, RandomPurpose::kInitialization);
  std::vector<std::int32_t> tokens(static_cast<std::size_t>(count));
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    tokens[i] =
        static_cast<std::int32_t>(random.Bits({.element = i}) % static_cast<std::uint32_t>(vocab));
  }
  return tokens;
}

/// `value` as stored in an element E.
template <class E>
E ToElement(double value) {
  if constexpr (std::is_same_v<E, double>) {
    return value;
  } else {
    return Rounded<E>(static_cast<float>(value));
  }
}

/// The values after rounding to T.
template <class T>
Arrays RoundedTo(Arrays arrays) {
  for (Array& array : arrays) {
    for (double& value : array) value = ToFloat(ToElement<T>(value));
  }
  return arrays;
}

/// A buffer of E, which is T or Accumulator<T>, in the device's memory.
template <class E, class T>
Buffer<E> ToDevice(Device<T>& device, const Array& values) {
  std::vector<E> converted;
  converted.reserve(values.size());
  for (const double value : values) converted.push_back(ToElement<E>(value));
  Buffer<E> buffer(device, converted.size());
  buffer.CopyFromHost(converted);
  return buffer;
}

template <class T>
Buffer<std::int32_t> TokensToDevice(Device<T>& device, const std::vector<std::int32_t>& tokens) {
  Buffer<std::int32_t> buffer(device, tokens.size());
  buffer.CopyFromHost(tokens);
  return buffer;
}

/// The values in the device's memory, and back.
template <class E>
Buffer<E> OnDevice(DeviceMemory& device, const std::vector<E>& values) {
  Buffer<E> buffer(device, values.size());
  buffer.CopyFromHost(values);
  return buffer;
}
template <class E>
std::vector<E> OnHost(const Buffer<E>& buffer) {
  std::vector<E> values(buffer.size());
  buffer.CopyToHost(values);
  return values;
}

/// A buffer of NaN, for output that an operation must write without reading it.
template <class E, class T>
Buffer<E> Unread(Device<T>& device, std::int64_t count) {
  return ToDevice<E>(device, Array(static_cast<std::size_t>(count), std::nan("")));
}

template <class E>
Array ToHost(const Buffer<E>& buffer) {
  std::vector<E> values(buffer.size());
  buffer.CopyToHost(values);
  Array array;
  array.reserve(values.size());
  for (const E value : values) array.push_back(ToFloat(value));
  return array;
}

inline double Dot(const Array& a, const Array& b) {
  double sum = 0;
  for (std::size_t i = 0; i < a.size(); ++i) sum += a[i] * b[i];
  return sum;
}

}  // namespace adaptive_train::kernels
