// The GELU, element by element.
#include "kernels/gelu.h"

#include "kernels/cuda/cuda_device.h"
#include "kernels/cuda/elements.h"
#include "kernels/cuda/gelu_functions.h"
#include "kernels/cuda/instances.h"

namespace adaptive_train::kernels::cuda {

template <class T>
void CudaDevice<T>::Gelu(const GeluArguments<T>& x) {
  stream_.Begin("Gelu");
  ForElements(stream_, x.count, [x] __device__(std::int64_t i) {
    x.output[i] = Narrow<T>(GeluOf(x.form, Wide(x.input[i])));
  });
}

template <class T>
void CudaDevice<T>::GeluBackward(const GeluBackwardArguments<T>& x) {
  stream_.Begin("GeluBackward");
  ForElements(stream_, x.count, [x] __device__(std::int64_t i) {
    x.d_input[i] = Narrow<T>(Wide(x.d_output[i]) * GeluDerivative(x.form, Wide(x.input[i])));
  });
}

ADAPTIVE_TRAIN_CUDA_OPERATION(Gelu, GeluArguments)
ADAPTIVE_TRAIN_CUDA_OPERATION(GeluBackward, GeluBackwardArguments)

}  // namespace adaptive_train::kernels::cuda
