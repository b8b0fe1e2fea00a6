// Rotary position embedding from a table of cosines and sines, which the host makes in double.
#include "kernels/rope.h"

#include <cmath>
#include <vector>

#include "kernels/cuda/cuda_device.h"
#include "kernels/cuda/elements.h"
#include "kernels/cuda/instances.h"

namespace adaptive_train::kernels::cuda {
namespace {

template <class T>
void Fill(DeviceMemory& memory, const RopeArguments<T>& x, RotaryTable& table) {
  if (table.sequence == x.sequence && table.head_size == x.head_size && table.base == x.base &&
      table.scaling == x.scaling)
    return;
  const std::int64_t half = x.head_size / 2;
  std::vector<float> cosine(static_cast<std::size_t>(x.sequence * half)), sine(cosine.size());
  for (std::int64_t i = 0; i < half; ++i) {
    const double rate = RopeRate(x.base, x.scaling, x.head_size, i);
    for (std::int64_t position = 0; position < x.sequence; ++position) {
      const auto at = static_cast<std::size_t>(position * half + i);
      cosine[at] = static_cast<float>(std::cos(static_cast<double>(position) * rate));
      sine[at] = static_cast<float>(std::sin(static_cast<double>(position) * rate));
    }
  }
  table = {};
  table.cosine = Buffer<float>(memory, cosine.size());
  table.sine = Buffer<float>(memory, sine.size());
  table.cosine.CopyFromHost(cosine);
  table.sine.CopyFromHost(sine);
  table.sequence = x.sequence;
  table.head_size = x.head_size;
  table.base = x.base;
  table.scaling = x.scaling;
}

}  // namespace

template <class T>
void CudaDevice<T>::Rope(const RopeArguments<T>& x) {
  Fill(*this, x, rotary_);
  stream_.Begin("Rope");
  const float *const cosines = rotary_.cosine.data(), *const sines = rotary_.sine.data();
  const std::int64_t half = x.head_size / 2, per_row = x.rotated_heads * half;
  ForElements(stream_, x.rows * per_row,
              [x, cosines, sines, half, per_row] __device__(std::int64_t at) {
                const std::int64_t row = at / per_row, head = at % per_row / half, i = at % half;
                T* const low = x.values + (row * x.heads + head) * x.head_size + i;
                T* const high = low + half;
                const std::int64_t angle = row % x.sequence * half + i;
                const float c = cosines[angle], s = x.inverse ? -sines[angle] : sines[angle];
                const float a = Wide(*low), b = Wide(*high);
                *low = Narrow<T>(fmaf(-b, s, a * c));
                *high = Narrow<T>(fmaf(a, s, b * c));
              });
}

ADAPTIVE_TRAIN_CUDA_OPERATION(Rope, RopeArguments)

}  // namespace adaptive_train::kernels::cuda
