// Token and position embedding as plain loops.
#include "kernels/reference/reference_device.h"

namespace adaptive_train::kernels::reference {

template <class T>
void ReferenceDevice<T>::Embedding(const EmbeddingArguments<T>& x) {
  for (std::int64_t row = 0; row < x.batch * x.sequence; ++row) {
    const T* token = x.token_weight + x.tokens[row] * x.columns;
    const T* position = x.position_weight + row % x.sequence * x.columns;
    for (std::int64_t i = 0; i < x.columns; ++i)
      x.output[row * x.columns + i] = token[i] + position[i];
  }
}

template <class T>
void ReferenceDevice<T>::EmbeddingBackward(const EmbeddingBackwardArguments<T>& x) {
  for (std::int64_t row = 0; row < x.batch * x.sequence; ++row) {
    T* d_token = x.d_token_weight + x.tokens[row] * x.columns;
    T* d_position = x.d_position_weight + row % x.sequence * x.columns;
    for (std::int64_t i = 0; i < x.columns; ++i) {
      d_token[i] += x.d_output[row * x.columns + i];
      d_position[i] += x.d_output[row * x.columns + i];
    }
  }
}

template void ReferenceDevice<float>::Embedding(const EmbeddingArguments<float>&);
template void ReferenceDevice<double>::Embedding(const EmbeddingArguments<double>&);
template void ReferenceDevice<float>::EmbeddingBackward(const EmbeddingBackwardArguments<float>&);
template void ReferenceDevice<double>::EmbeddingBackward(const EmbeddingBackwardArguments<double>&);

}  // namespace adaptive_train::kernels::reference
