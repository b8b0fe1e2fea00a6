// Dropout with four random numbers from each Philox block, a block a thread: the CPU's bits.
#include "kernels/dropout.h"

#include <cmath>

#include "kernels/cuda/cuda_device.h"
#include "kernels/cuda/elements.h"
#include "kernels/cuda/instances.h"

namespace adaptive_train::kernels::cuda {

template <class T>
void CudaDevice<T>::Dropout(const DropoutArguments<T>& x) {
  stream_.Begin("Dropout");
  if (x.begin == x.end) return;
  // A number is k * 2^-24 with an integer k. It is at least the probability exactly if k is at least
  // this threshold.
  const auto threshold = static_cast<std::uint32_t>(std::ceil(x.probability * 0x1p24));
  const auto scale = static_cast<float>(1 / (1 - x.probability));
  const std::int64_t blocks = Pieces(x.elements, 4), first = x.begin / x.elements;
  const std::int64_t samples = (x.end - 1) / x.elements - first + 1;
  ForElements(stream_, samples * blocks, [=, key = x.random.key()] __device__(std::int64_t index) {
    const std::int64_t sample = first + index / blocks, block = index % blocks;
    const PhiloxCounter random =
        Philox4x32({static_cast<std::uint32_t>(block), x.step,
                    x.first_sample + static_cast<std::uint32_t>(sample),
                    static_cast<std::uint32_t>(block >> 32) << 16 | x.layer},
                   key);
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      const std::int64_t element = 4 * block + j, at = sample * x.elements + element;
      if (element >= x.elements || at < x.begin || at >= x.end) continue;
      const std::int64_t i = at - x.begin;
      const bool kept = random[j] >> 8 >= threshold;
      // Rounded twice, never fused.
      const float value = kept ? __fmul_rn(Wide(x.input[i]), scale) : 0;
      x.output[i] =
          Narrow<T>(x.residual == nullptr ? value : __fadd_rn(Wide(x.residual[i]), value));
    }
  });
}

ADAPTIVE_TRAIN_CUDA_OPERATION(Dropout, DropoutArguments)

}  // namespace adaptive_train::kernels::cuda
