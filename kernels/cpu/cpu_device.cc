// The processor's name and threads.
#include "kernels/cpu/cpu_device.h"

#include "kernels/cpu/panel.h"
#include "kernels/cpu/product.h"
#include "kernels/cpu/tile_product.h"

namespace adaptive_train::kernels::cpu {

namespace {

const char* TileUnitName() {
  return TileUnitHere() == TileUnit::kMatrix ? ", AMX" : ", AVX512-BF16";
}

}  // namespace

template <class T>
CpuDevice<T>::CpuDevice(int threads) : pool_(threads), by_tiles_(TilesPay<T>()) {}

template <class T>
float* CpuDevice<T>::Scratch(std::int64_t floats) {
  const auto size = static_cast<std::size_t>(floats);
  if (scratch_.size() < size) {
    scratch_ = {};  // frees the old memory first
    scratch_ = Buffer<float>(*this, size);
  }
  return scratch_.data();
}

template <class T>
std::string CpuDevice<T>::Description() const {
  return "CPU, " + std::to_string(pool_.threads()) +
         (pool_.threads() == 1 ? " thread" : " threads") + ", " + ProductInstructions() +
         (by_tiles_ ? TileUnitName() : "");
}

template <class T>
void CpuDevice<T>::Widen(std::int64_t count, const T* values, float* sums) {
  pool_.ForPieces(count, kElementsPerPiece, [&](std::int64_t begin, std::int64_t end) {
    cpu::Widen<T>(
        {.rows = 1, .columns = end - begin, .matrix = values + begin, .panel = sums + begin});
  });
}

template class CpuDevice<float>;
template class CpuDevice<BFloat16>;
template class CpuDevice<Float16>;

}  // namespace adaptive_train::kernels::cpu
