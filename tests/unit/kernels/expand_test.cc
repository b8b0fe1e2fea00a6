// Values put back to their places, compared with a loop over bits, on every instruction set.
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <string>
#include <vector>

#include "core/counter_random.h"
#include "kernels/cpu/sparse.h"
#include "kernels/scalar.h"
#include "tests/unit/kernels/agreement.h"

namespace adaptive_train::kernels::cpu::expand_test {
namespace {

constexpr int kSmallest = 440;

/// Some elements of an array; the buffers are exactly as long as required.
struct Sparse {
  std::vector<float> dense;  // 0 where nothing is sent
  std::vector<std::byte> bitmap, values;
  std::int64_t value_count = 0;
  ValueFormat format;

  Sparse(std::int64_t count, double density, ValueFormat of) : format(of) {
    const CounterRandom random(3, RandomPurpose::kInitialization);
    dense.resize(static_cast<std::size_t>(count));
    bitmap.resize(static_cast<std::size_t>((count + 7) / 8));
    for (std::size_t i = 0; i < dense.size(); ++i) {
      if (static_cast<double>(random.Uniform({.step = 1, .element = i})) >= density) continue;
      bitmap[i / 8] |= std::byte{1} << i % 8;
      dense[i] = Append(random.Bits({.step = 2, .element = i}));
      ++value_count;
    }
  }

  void Expand(std::vector<float>& to, bool add) const {
    const ExpandArguments x{.count = static_cast<std::int64_t>(dense.size()),
                            .bitmap = bitmap.data(),
                            .value_count = value_count,
                            .values = values.data(),
                            .format = format,
                            .smallest = kSmallest,
                            .to = to.data()};
    add ? AddExpanded(x) : cpu::Expand(x);
  }

 private:
  template <class T>
  void AppendBytes(T value) {
    values.resize(values.size() + sizeof value);
    std::memcpy(values.data() + values.size() - sizeof value, &value, sizeof value);
  }
  /// Appends a 16-bit number in the format; returns its value.
  float Append(std::uint32_t bits) {
    const float value = static_cast<float>(static_cast<int>(bits % 256) - 128) / 64;
    switch (format) {
      case ValueFormat::kFloat32:
        AppendBytes(value);
        return value;
      case ValueFormat::kInt4:
      case ValueFormat::kBFloat16:
        AppendBytes(Rounded<BFloat16>(value));
        return value;
      case ValueFormat::kFloat8:
        break;
    }
    const auto code = static_cast<std::uint8_t>(bits);
    AppendBytes(code);
    const std::uint32_t size = (kSmallest + (code & 127u)) << kFloat8Shift;
    return std::copysign(std::bit_cast<float>(size), code < 128 ? 1.0F : -1.0F);
  }
};

TEST(Expand, PutsValuesWhereTheirBitsAre) {
  OnEveryInstructionSet([](const std::string& name) {
    for (const ValueFormat format :
         {ValueFormat::kFloat32, ValueFormat::kBFloat16, ValueFormat::kFloat8}) {
      for (const std::int64_t count : {0, 1, 7, 63, 64, 65, 128, 200, 1000}) {
        for (const double density : {0.0, 0.03, 0.5, 0.97, 1.0}) {
          const Sparse sparse(count, density, format);
          const std::string what = name + ", " + std::to_string(count) + " elements, density " +
                                   std::to_string(density) + ", format " +
                                   std::to_string(static_cast<int>(format));
          std::vector<float> to(sparse.dense.size(), 5);
          sparse.Expand(to, false);
          EXPECT_EQ(sparse.dense, to) << what;
          sparse.Expand(to, true);
          std::vector<float> twice = sparse.dense;
          for (float& value : twice) value += value;
          EXPECT_EQ(twice, to) << what;
        }
      }
    }
  });
}

}  // namespace
}  // namespace adaptive_train::kernels::cpu::expand_test
