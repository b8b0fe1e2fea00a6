// The tiles of AMX by Intel's definition of their instructions (Architectures Software Developer's
// Manual, volume 2: LDTILECFG, TILELOADD, TILESTORED, TILEZERO, TDPBF16PS).
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace adaptive_train::kernels::cpu {

/// Eight tile registers of up to 16 rows of 64 bytes; each thread has its own. What a processor
/// would refuse ends the program.
class EmulatedTiles {
 public:
  static EmulatedTiles& OfThisThread();

  /// Takes 64 bytes: palette 1, start row 0, then bytes a row and rows of the tiles.
  void LoadConfig(const void* config);
  void Release();
  void Load(int tile, const void* from, std::ptrdiff_t stride_bytes);
  void Store(int tile, void* to, std::ptrdiff_t stride_bytes);
  void Zero(int tile);
  /// sums[m][n] += sums over k of first[m][k] second[k][n], pairs of bfloat16: the even numbers of
  /// the pairs make one chain of fused products, the odd ones another, and the two together are
  /// added to the sum. All roundings are to the nearest even float32; what is subnormal counts as
  /// zero, before and after each operation.
  void AddProducts(int sums, int first, int second);

 private:
  struct Tile {
    int rows = 0, row_bytes = 0;  // 0: not configured
    std::array<std::array<std::uint32_t, 16>, 16> row{};
  };
  Tile& Configured(int tile);

  std::array<Tile, 8> tiles_;
};

/// a b + sum as products of bfloat16 numbers are rounded, by the tiles' unit and on vectors.
float FusedSum(float a, float b, float sum);

}  // namespace adaptive_train::kernels::cpu
