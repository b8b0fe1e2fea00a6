// Contract of the Gaussian error linear unit (Hendrycks, Gimpel 2016). Matrix products can apply it
// before they store their result (matmul.h).
#pragma once

#include <cstdint>

namespace adaptive_train::kernels {

inline constexpr double kGeluRootTwoOverPi = 0.79788456080286535588;
inline constexpr double kGeluCubic = 0.044715;

enum class GeluForm {
  kNone,
  kTanh,  // x/2 (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3))): GPT-2
  kErf,   // x/2 (1 + erf(x / sqrt(2))): BERT
};

/// output[i] = gelu(input[i]). output may be input. The form is not kNone.
template <class T>
struct GeluArguments {
  std::int64_t count = 0;
  GeluForm form = GeluForm::kTanh;
  const T* input = nullptr;
  T* output = nullptr;
};

/// d_input[i] = d_output[i] * gelu'(input[i]). d_input may be d_output.
template <class T>
struct GeluBackwardArguments {
  std::int64_t count = 0;
  GeluForm form = GeluForm::kTanh;
  const T* input = nullptr;
  const T* d_output = nullptr;
  T* d_input = nullptr;
};

}  // namespace adaptive_train::kernels
