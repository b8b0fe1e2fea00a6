// Contract of the Gaussian error linear unit (Hendrycks, Gimpel 2016) in the tanh form of GPT-2.
#pragma once

#include <cstdint>

namespace adaptive_train::kernels {

inline constexpr double kGeluRootTwoOverPi = 0.79788456080286535588;
inline constexpr double kGeluCubic = 0.044715;

/// output[i] = x/2 (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3))), x = input[i]. output may be input.
template <class T>
struct GeluArguments {
  std::int64_t count = 0;
  const T* input = nullptr;
  T* output = nullptr;
};

/// d_input[i] = d_output[i] * gelu'(input[i]). d_input may be d_output.
template <class T>
struct GeluBackwardArguments {
  std::int64_t count = 0;
  const T* input = nullptr;
  const T* d_output = nullptr;
  T* d_input = nullptr;
};

}  // namespace adaptive_train::kernels
