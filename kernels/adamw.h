// Contract of the AdamW update (Kingma, Ba 2015; Loshchilov, Hutter 2019).
#pragma once

#include <cstdint>

namespace adaptive_train::kernels {

/// For step t = 1, 2, ... and g = gradient_scale * gradients[i]:
///   first  = beta1 first  + (1 - beta1) g
///   second = beta2 second + (1 - beta2) g^2
///   parameter -= lr (first / (1 - beta1^t) / (sqrt(second / (1 - beta2^t)) + epsilon) +
///   weight_decay parameter)
/// where the decay is decoupled and takes the parameter's old value. Gradients are left as they
/// are.
template <class T>
struct AdamWArguments {
  std::int64_t count = 0;
  T* parameters = nullptr;
  const T* gradients = nullptr;
  T* first_moments = nullptr;
  T* second_moments = nullptr;
  std::int64_t step = 1;
  double lr = 0;
  double beta1 = 0.9;
  double beta2 = 0.95;
  double epsilon = 1e-8;
  double weight_decay = 0;
  double gradient_scale = 1;  // clipping, without a pass of its own
};

}  // namespace adaptive_train::kernels
