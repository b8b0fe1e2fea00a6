// AdamW in one pass over the arenas, rounding and widening.
#include "kernels/adamw.h"

#include <cmath>

#include "kernels/cuda/cuda_device.h"
#include "kernels/cuda/elements.h"
#include "kernels/cuda/instances.h"

namespace adaptive_train::kernels::cuda {
namespace {

/// The update's numbers as the pass needs them.
struct Factors {
  float beta1, new1, beta2, new2, correction1, correction2, epsilon, lr, decay, gradient_scale;
};

template <class T>
Factors FactorsOf(const AdamWArguments<T>& x) {
  const auto step = static_cast<double>(x.step);
  const auto of = [](double value) { return static_cast<float>(value); };
  return {of(x.beta1),
          of(1 - x.beta1),
          of(x.beta2),
          of((1 - x.beta2) * x.square_scale),
          of(1 / (1 - std::pow(x.beta1, step))),
          of(1 / (1 - std::pow(x.beta2, step))),
          of(x.epsilon),
          of(x.lr),
          of(x.weight_decay),
          of(x.gradient_scale)};
}

}  // namespace

template <class T>
void CudaDevice<T>::AdamW(const AdamWArguments<T>& x) {
  stream_.Begin("AdamW");
  ForElements(stream_, x.count, [x, f = FactorsOf(x)] __device__(std::int64_t i) {
    const float gradient = f.gradient_scale * x.gradients[i];
    const float first = fmaf(f.beta1, x.first_moments[i], f.new1 * gradient);
    const float second = fmaf(f.beta2, x.second_moments[i], f.new2 * gradient * gradient);
    const float direction = first * f.correction1 / (sqrtf(second * f.correction2) + f.epsilon);
    const float old = x.parameters[i];
    const float parameter = fmaf(-f.lr, fmaf(f.decay, old, direction), old);
    x.first_moments[i] = first;
    x.second_moments[i] = second;
    x.parameters[i] = parameter;
    if (x.weights != nullptr) x.weights[i] = Narrow<T>(parameter);
  });
}

template <class T>
void CudaDevice<T>::Round(const RoundArguments<T>& x) {
  stream_.Begin("Round");
  ForNeighbours<4>(
      stream_, x.count,
      [x] __device__(std::int64_t i, auto width) {
        const Neighbours<float, width> parameters = Load<width>(x.parameters + i);
        Neighbours<T, width> weights;
#pragma unroll
        for (int j = 0; j < width; ++j) weights.at[j] = Narrow<T>(parameters.at[j]);
        Store(weights, x.weights + i);
      },
      x.parameters, x.weights);
}

template <class T>
void CudaDevice<T>::Widen(std::int64_t count, const T* values, float* sums) {
  stream_.Begin("Widen");
  ForElements(stream_, count,
              [values, sums] __device__(std::int64_t i) { sums[i] = Wide(values[i]); });
}

ADAPTIVE_TRAIN_CUDA_OPERATION(AdamW, AdamWArguments)
ADAPTIVE_TRAIN_CUDA_OPERATION(Round, RoundArguments)
template void CudaDevice<float>::Widen(std::int64_t, const float*, float*);
template void CudaDevice<BFloat16>::Widen(std::int64_t, const BFloat16*, float*);
template void CudaDevice<Float16>::Widen(std::int64_t, const Float16*, float*);

}  // namespace adaptive_train::kernels::cuda
