// Token and position embedding; gradients a few columns at a time, so that equal tokens never meet.
#include "kernels/cpu/cpu_device.h"
#include "kernels/cpu/thread_pool.h"

namespace adaptive_train::kernels::cpu {
namespace {

constexpr std::int64_t kRowsPerPiece = 64;
constexpr std::int64_t kColumnsPerPiece = 64;

void AddTo(std::int64_t count, const float* from, float* to) {
  for (std::int64_t i = 0; i < count; ++i) to[i] += from[i];
}

}  // namespace

void CpuDevice::Embedding(const EmbeddingArguments<float>& x) {
  pool_.ForPieces(x.batch * x.sequence, kRowsPerPiece, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t row = begin; row < end; ++row) {
      const float* token = x.token_weight + x.tokens[row] * x.columns;
      const float* position = x.position_weight + row % x.sequence * x.columns;
      float* output = x.output + row * x.columns;
      for (std::int64_t i = 0; i < x.columns; ++i) output[i] = token[i] + position[i];
    }
  });
}

void CpuDevice::EmbeddingBackward(const EmbeddingBackwardArguments<float>& x) {
  pool_.ForPieces(x.columns, kColumnsPerPiece, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t row = 0; row < x.batch * x.sequence; ++row) {
      const float* d_output = x.d_output + row * x.columns + begin;
      AddTo(end - begin, d_output, x.d_token_weight + x.tokens[row] * x.columns + begin);
      AddTo(end - begin, d_output, x.d_position_weight + row % x.sequence * x.columns + begin);
    }
  });
}

}  // namespace adaptive_train::kernels::cpu
