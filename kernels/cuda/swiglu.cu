// The gated unit, element by element.
#include "kernels/swiglu.h"

#include "kernels/cuda/cuda_device.h"
#include "kernels/cuda/elements.h"
#include "kernels/cuda/instances.h"

namespace adaptive_train::kernels::cuda {

template <class T>
void CudaDevice<T>::Swiglu(const SwigluArguments<T>& x) {
  stream_.Begin("Swiglu");
  ForElements(stream_, x.rows * x.columns, [x] __device__(std::int64_t i) {
    const T* const gates = x.input + i / x.columns * 2 * x.columns + i % x.columns;
    const float gate = Wide(gates[0]), up = Wide(gates[x.columns]);
    x.output[i] = Narrow<T>(gate / (1 + expf(-gate)) * up);
  });
}

// With s = 1 / (1 + exp(-x)): silu(x) = x s, silu'(x) = s + x s (1 - s).
template <class T>
void CudaDevice<T>::SwigluBackward(const SwigluBackwardArguments<T>& x) {
  stream_.Begin("SwigluBackward");
  ForElements(stream_, x.rows * x.columns, [x] __device__(std::int64_t i) {
    const std::int64_t at = i / x.columns * 2 * x.columns + i % x.columns;
    const float gate = Wide(x.input[at]), up = Wide(x.input[at + x.columns]);
    const float d = Wide(x.d_output[i]), s = 1 / (1 + expf(-gate));
    x.d_input[at] = Narrow<T>(d * up * (s + gate * s * (1 - s)));
    x.d_input[at + x.columns] = Narrow<T>(d * gate * s);
  });
}

ADAPTIVE_TRAIN_CUDA_OPERATION(Swiglu, SwigluArguments)
ADAPTIVE_TRAIN_CUDA_OPERATION(SwigluBackward, SwigluBackwardArguments)

}  // namespace adaptive_train::kernels::cuda
