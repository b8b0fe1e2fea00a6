// GELU: x/2 (1 + tanh(u)) = x / (1 + exp(-2 u)).
#include "kernels/cpu/cpu_device.h"
#include "kernels/cpu/thread_pool.h"
#include "kernels/cpu/vector_math.h"

namespace adaptive_train::kernels::cpu {
namespace {

constexpr auto kTwoRoot = static_cast<float>(2 * kGeluRootTwoOverPi);
constexpr auto kCubic = static_cast<float>(kGeluCubic);

/// The factor of x, between 0 and 1.
inline float Gate(float x) { return 1 / (1 + Exp(-kTwoRoot * (x + kCubic * x * x * x))); }

}  // namespace

void CpuDevice::Gelu(const GeluArguments<float>& x) {
  pool_.ForPieces(x.count, kElementsPerPiece, [&](std::int64_t begin, std::int64_t end) {
    const float* input = x.input;
    float* output = x.output;
    for (std::int64_t i = begin; i < end; ++i) output[i] = input[i] * Gate(input[i]);
  });
}

void CpuDevice::GeluBackward(const GeluBackwardArguments<float>& x) {
  pool_.ForPieces(x.count, kElementsPerPiece, [&](std::int64_t begin, std::int64_t end) {
    const float* input = x.input;
    const float* d_output = x.d_output;
    float* d_input = x.d_input;
    for (std::int64_t i = begin; i < end; ++i) {
      const float value = input[i], gate = Gate(value);
      const float d_exponent = kTwoRoot * (1 + 3 * kCubic * value * value);
      d_input[i] = d_output[i] * (gate + value * gate * (1 - gate) * d_exponent);
    }
  });
}

}  // namespace adaptive_train::kernels::cpu
