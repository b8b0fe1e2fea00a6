// Element by element operations.
#include "kernels/cpu/cpu_device.h"
#include "kernels/cpu/thread_pool.h"

namespace adaptive_train::kernels::cpu {
void CpuDevice::Add(const AddArguments<float>& x) {
  pool_.ForPieces(x.count, kElementsPerPiece, [&](std::int64_t begin, std::int64_t end) {
    const float* a = x.a;
    const float* b = x.b;
    float* output = x.output;
    for (std::int64_t i = begin; i < end; ++i) output[i] = a[i] + b[i];
  });
}

void CpuDevice::Scale(const ScaleArguments<float>& x) {
  const auto factor = static_cast<float>(x.factor);
  pool_.ForPieces(x.count, kElementsPerPiece, [&](std::int64_t begin, std::int64_t end) {
    float* values = x.values;
    for (std::int64_t i = begin; i < end; ++i) values[i] *= factor;
  });
}

}  // namespace adaptive_train::kernels::cpu
