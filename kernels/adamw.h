// Contract of the AdamW update (Kingma, Ba 2015; Loshchilov, Hutter 2019).
#pragma once

#include <cstdint>

#include "kernels/scalar.h"

namespace adaptive_train::kernels {

/// For step t = 1, 2, ... and g = gradient_scale * gradients[i]:
///   first  = beta1 first  + (1 - beta1) g
///   second = beta2 second + (1 - beta2) square_scale g^2
///   parameter -= lr (first / (1 - beta1^t) / (sqrt(second / (1 - beta2^t)) + epsilon) +
///                    weight_decay parameter)
/// The decay is decoupled and uses the parameter's old value. Gradients are not changed. `weights`,
/// unless nullptr, receives the parameters rounded to T: the copy that products use in mixed
/// precision.
template <class T>
struct AdamWArguments {
  std::int64_t count = 0;
  Accumulator<T>* parameters = nullptr;
  const Accumulator<T>* gradients = nullptr;
  Accumulator<T>* first_moments = nullptr;
  Accumulator<T>* second_moments = nullptr;
  T* weights = nullptr;
  std::int64_t step = 1;
  double lr = 0;
  double beta1 = 0.9;
  double beta2 = 0.95;
  double epsilon = 1e-8;
  double weight_decay = 0;
  double gradient_scale = 1;  // clipping and the loss scale, without an extra pass
  double square_scale = 1;    // below 1 for a gradient with more noise than moments are to have
};

/// weights[i] = parameters[i] rounded to T.
template <class T>
struct RoundArguments {
  std::int64_t count = 0;
  const Accumulator<T>* parameters = nullptr;
  T* weights = nullptr;
};

}  // namespace adaptive_train::kernels
