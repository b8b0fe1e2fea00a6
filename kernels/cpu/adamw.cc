// AdamW in one pass over the arenas.
#include <cmath>

#include "kernels/cpu/cpu_device.h"
#include "kernels/cpu/thread_pool.h"

namespace adaptive_train::kernels::cpu {
namespace {

/// The factors of the update, each rounded once.
struct Factors {
  explicit Factors(const AdamWArguments<float>& x)
      : beta1(static_cast<float>(x.beta1)),
        beta2(static_cast<float>(x.beta2)),
        new1(static_cast<float>(1 - x.beta1)),
        new2(static_cast<float>(1 - x.beta2)),
        correction1(static_cast<float>(1 / (1 - std::pow(x.beta1, static_cast<double>(x.step))))),
        correction2(static_cast<float>(1 / (1 - std::pow(x.beta2, static_cast<double>(x.step))))),
        epsilon(static_cast<float>(x.epsilon)),
        lr(static_cast<float>(x.lr)),
        decay(static_cast<float>(x.weight_decay)),
        gradient_scale(static_cast<float>(x.gradient_scale)) {}

  float beta1, beta2, new1, new2, correction1, correction2, epsilon, lr, decay, gradient_scale;
};

}  // namespace

void CpuDevice::AdamW(const AdamWArguments<float>& x) {
  const Factors f(x);
  pool_.ForPieces(x.count, kElementsPerPiece, [&x, f](std::int64_t begin, std::int64_t end) {
    float* __restrict parameters = x.parameters;
    const float* __restrict gradients = x.gradients;
    float* __restrict first = x.first_moments;
    float* __restrict second = x.second_moments;
    for (std::int64_t i = begin; i < end; ++i) {
      const float gradient = f.gradient_scale * gradients[i];
      first[i] = f.beta1 * first[i] + f.new1 * gradient;
      second[i] = f.beta2 * second[i] + f.new2 * gradient * gradient;
      const float direction =
          first[i] * f.correction1 / (std::sqrt(second[i] * f.correction2) + f.epsilon);
      parameters[i] -= f.lr * (direction + f.decay * parameters[i]);
    }
  });
}

}  // namespace adaptive_train::kernels::cpu
