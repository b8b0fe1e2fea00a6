// The embedding as plain loops.
#include "kernels/embedding.h"

#include "kernels/reference/reference_device.h"

namespace adaptive_train::kernels::reference {

template <class T>
void ReferenceDevice<T>::Embedding(const EmbeddingArguments<T>& x) {
  for (std::int64_t row = 0; row < x.batch * x.sequence; ++row) {
    for (std::int64_t i = 0; i < x.columns; ++i) {
      const T token = x.tokens[row] < 0 ? T{0} : x.token_weight[x.tokens[row] * x.columns + i];
      T sum = x.token_last ? T{0} : token;
      if (x.position_weight != nullptr) sum += x.position_weight[row % x.sequence * x.columns + i];
      if (x.type_weight != nullptr) sum += x.type_weight[i];
      if (x.token_last) sum += token;
      x.output[row * x.columns + i] = sum;
    }
  }
}

template <class T>
void ReferenceDevice<T>::EmbeddingBackward(const EmbeddingBackwardArguments<T>& x) {
  for (std::int64_t row = 0; row < x.batch * x.sequence; ++row) {
    for (std::int64_t i = 0; i < x.columns; ++i) {
      const T d = x.d_output[row * x.columns + i];
      if (x.d_token_weight != nullptr && x.tokens[row] >= 0) {
        x.d_token_weight[x.tokens[row] * x.columns + i] += d;
      }
      if (x.d_position_weight != nullptr) {
        x.d_position_weight[row % x.sequence * x.columns + i] += d;
      }
      if (x.d_type_weight != nullptr) x.d_type_weight[i] += d;
    }
  }
}

template void ReferenceDevice<float>::Embedding(const EmbeddingArguments<float>&);
template void ReferenceDevice<double>::Embedding(const EmbeddingArguments<double>&);
template void ReferenceDevice<float>::EmbeddingBackward(const EmbeddingBackwardArguments<float>&);
template void ReferenceDevice<double>::EmbeddingBackward(const EmbeddingBackwardArguments<double>&);

}  // namespace adaptive_train::kernels::reference
