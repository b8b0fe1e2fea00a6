#include "tests/unit/kernels/emulated_tiles.h"

#include <bit>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <limits>

namespace adaptive_train::kernels::cpu {
namespace {

[[noreturn]] void Refuse(const char* what, int tile) {
  std::fprintf(stderr, "a processor refuses this: %s (tile %d)\n", what, tile);
  std::abort();
}

float WithoutSubnormal(float x) {
  return std::abs(x) < std::numeric_limits<float>::min() ? std::copysign(0.0F, x) : x;
}

/// To the nearest float. Whether it is subnormal is judged after it was rounded as if there were no
/// least exponent: what rounds up to 2^-126 stays.
float Rounded(double x) {
  constexpr double kLeast = 0x1p-126 - 0x1p-151;
  return std::abs(x) < kLeast ? std::copysign(0.0F, static_cast<float>(x)) : static_cast<float>(x);
}

/// Two such numbers have a product that float32 holds exactly, and sums of such products are no
/// smaller than its last place, so never subnormal.
bool Moderate(float x) { return x == 0 || (std::abs(x) > 0x1p-50F && std::abs(x) < 0x1p50F); }

/// A tile as pairs of numbers.
struct Operand {
  template <class Rows>
  explicit Operand(const Rows& row) {
    for (std::size_t m = 0; m < 16; ++m) {
      for (std::size_t n = 0; n < 16; ++n) {
        even[m][n] = std::bit_cast<float>(row[m][n] << 16);
        odd[m][n] = std::bit_cast<float>(row[m][n] & 0xffff0000U);
        moderate &= Moderate(even[m][n]) && Moderate(odd[m][n]);
      }
    }
  }
  std::array<std::array<float, 16>, 16> even, odd;
  bool moderate = true;
};

/// sums[n] += a b[n].
template <class Sum>
void AddRow(float a, const std::array<float, 16>& b, std::array<float, 16>& sums, const Sum& sum) {
  for (std::size_t n = 0; n < 16; ++n) sums[n] = sum(a, b[n], sums[n]);
}

}  // namespace

/// A product of bfloat16 numbers is exact in double, and a float's sum with it is rounded to 53
/// bits before it is rounded to 24: more than twice as many and two, so that the second rounding
/// gives what one would (Figueroa, When is double rounding innocuous?, 1995).
float FusedSum(float a, float b, float sum) {
  return Rounded(static_cast<double>(WithoutSubnormal(a)) *
                     static_cast<double>(WithoutSubnormal(b)) +
                 static_cast<double>(WithoutSubnormal(sum)));
}

EmulatedTiles& EmulatedTiles::OfThisThread() {
  thread_local EmulatedTiles tiles;
  return tiles;
}

EmulatedTiles::Tile& EmulatedTiles::Configured(int tile) {
  if (tile < 0 || tile >= 8) Refuse("there are eight tiles", tile);
  Tile& one = tiles_[static_cast<std::size_t>(tile)];
  if (one.rows == 0) Refuse("the tile is not configured", tile);
  return one;
}

void EmulatedTiles::LoadConfig(const void* config) {
  std::array<std::uint8_t, 64> bytes;
  std::memcpy(bytes.data(), config, bytes.size());
  if (bytes[0] != 1 || bytes[1] != 0) Refuse("not palette 1 from row 0", 0);
  for (std::size_t i = 2; i < 16; ++i)
    if (bytes[i] != 0) Refuse("reserved bytes are not 0", 0);
  for (std::size_t i = 0; i < 8; ++i) {
    const int row_bytes = bytes[16 + 2 * i] | bytes[17 + 2 * i] << 8, rows = bytes[48 + i];
    if (row_bytes > 64 || rows > 16 || (row_bytes == 0) != (rows == 0))
      Refuse("the shape is not possible", static_cast<int>(i));
    tiles_[i] = Tile{.rows = rows, .row_bytes = row_bytes};
  }
}

void EmulatedTiles::Release() { tiles_ = {}; }

void EmulatedTiles::Load(int tile, const void* from, std::ptrdiff_t stride_bytes) {
  Tile& to = Configured(tile);
  to.row = {};
  for (int row = 0; row < to.rows; ++row)
    std::memcpy(to.row[static_cast<std::size_t>(row)].data(),
                static_cast<const char*>(from) + row * stride_bytes,
                static_cast<std::size_t>(to.row_bytes));
}

void EmulatedTiles::Store(int tile, void* to, std::ptrdiff_t stride_bytes) {
  const Tile& from = Configured(tile);
  for (int row = 0; row < from.rows; ++row)
    std::memcpy(static_cast<char*>(to) + row * stride_bytes,
                from.row[static_cast<std::size_t>(row)].data(),
                static_cast<std::size_t>(from.row_bytes));
}

void EmulatedTiles::Zero(int tile) { Configured(tile).row = {}; }

void EmulatedTiles::AddProducts(int sums, int first, int second) {
  if (sums == first || sums == second || first == second) Refuse("tiles are not distinct", sums);
  Tile& c = Configured(sums);
  const Tile &left = Configured(first), &right = Configured(second);
  if (c.row_bytes != right.row_bytes || c.rows != left.rows || left.row_bytes / 4 != right.rows)
    Refuse("the tiles' shapes do not fit", sums);
  const Operand a(left.row), b(right.row);
  for (std::size_t m = 0; m < static_cast<std::size_t>(c.rows); ++m) {
    std::array<float, 16> even{}, odd{};
    const auto add = [&](const auto& sum) {
      for (std::size_t k = 0; k < static_cast<std::size_t>(right.rows); ++k) {
        AddRow(a.even[m][k], b.even[k], even, sum);
        AddRow(a.odd[m][k], b.odd[k], odd, sum);
      }
    };
    if (a.moderate && b.moderate) {
      add([](float x, float y, float sum) { return sum + x * y; });
    } else {
      add(FusedSum);
    }
    for (std::size_t n = 0; n < 16; ++n) {
      const float both = FusedSum(even[n], 1, odd[n]);
      c.row[m][n] =
          std::bit_cast<std::uint32_t>(FusedSum(both, 1, std::bit_cast<float>(c.row[m][n])));
    }
  }
}

}  // namespace adaptive_train::kernels::cpu
