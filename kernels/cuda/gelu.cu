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
  ApplyGelu(stream_, x.count, x.form, x.input, x.output);
}

template <class T>
void CudaDevice<T>::GeluBackward(const GeluBackwardArguments<T>& x) {
  stream_.Begin("GeluBackward");
  MultiplyByGeluDerivative(stream_, x.count, x.form, x.input, x.d_output, x.d_input);
}

ADAPTIVE_TRAIN_CUDA_OPERATION(Gelu, GeluArguments)
ADAPTIVE_TRAIN_CUDA_OPERATION(GeluBackward, GeluBackwardArguments)

}  // namespace adaptive_train::kernels::cuda
