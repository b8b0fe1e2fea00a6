// Softmax and cross-entropy, a few rows at a time.
#include <cmath>

#include "kernels/cpu/cpu_device.h"
#include "kernels/cpu/thread_pool.h"
#include "kernels/cpu/vector_math.h"

namespace adaptive_train::kernels::cpu {
namespace {

constexpr std::int64_t kRowsPerPiece = 16;

void LossOfRow(const CrossEntropyArguments<float>& x, std::int64_t row) {
  const float* logits = x.logits + row * x.classes;
  const std::int32_t target = x.targets[row];
  const float largest = LargestOf(x.classes, logits);
  const float sum = SumOf(x.classes, [=](std::int64_t i) { return Exp(logits[i] - largest); });
  x.losses[row] = largest - logits[target] + std::log(sum);
  if (x.d_logits == nullptr) return;
  float* d_logits = x.d_logits + row * x.classes;
  const auto scale = static_cast<float>(x.gradient_scale);
  const float factor = scale / sum;
  for (std::int64_t i = 0; i < x.classes; ++i) d_logits[i] = factor * Exp(logits[i] - largest);
  d_logits[target] -= scale;
}

}  // namespace

void CpuDevice::CrossEntropy(const CrossEntropyArguments<float>& x) {
  pool_.ForPieces(x.rows, kRowsPerPiece, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t row = begin; row < end; ++row) LossOfRow(x, row);
  });
}

}  // namespace adaptive_train::kernels::cpu
