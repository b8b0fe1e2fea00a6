// Causal attention: one sample and head at a time, a block of queries against the keys it may see.
#include <algorithm>
#include <cmath>

#include "kernels/cpu/cpu_device.h"
#include "kernels/cpu/sgemm.h"
#include "kernels/cpu/thread_pool.h"
#include "kernels/cpu/vector_math.h"

namespace adaptive_train::kernels::cpu {
namespace {

constexpr std::int64_t kQueriesPerBlock = 64;

/// One sample and head: where its first rows lie, and how far apart its rows are.
struct Head {
  std::int64_t first_qkv, qkv_stride;  // query; key and value follow at part_size each
  std::int64_t part_size;
  std::int64_t first_output, output_stride;
  std::int64_t first_log_sum_exp;
};

template <class Arguments>
Head HeadAt(const Arguments& x, std::int64_t index) {
  const std::int64_t sample = index / x.heads, head = index % x.heads,
                     hidden = x.heads * x.head_size;
  const std::int64_t first_token = sample * x.sequence;
  return {.first_qkv = first_token * 3 * hidden + head * x.head_size,
          .qkv_stride = 3 * hidden,
          .part_size = hidden,
          .first_output = first_token * hidden + head * x.head_size,
          .output_stride = hidden,
          .first_log_sum_exp = index * x.sequence};
}

/// Turns the scores of query `position` into probabilities, those of later keys into 0; returns the
/// logarithm of the denominator.
float Softmax(float* scores, std::int64_t position, std::int64_t keys) {
  const std::int64_t visible = position + 1;
  const float largest = LargestOf(visible, scores);
  for (std::int64_t j = 0; j < visible; ++j) scores[j] = Exp(scores[j] - largest);
  const float sum = SumOf(visible, [=](std::int64_t j) { return scores[j]; });
  for (std::int64_t j = 0; j < visible; ++j) scores[j] *= 1 / sum;
  std::fill(scores + visible, scores + keys, 0.0F);
  return largest + std::log(sum);
}

void ForwardHead(const AttentionArguments<float>& x, const Head& head, float* scores) {
  const float scale = 1 / std::sqrt(static_cast<float>(x.head_size));
  const float* query = x.qkv + head.first_qkv;
  const Operand value{query + 2 * head.part_size, head.qkv_stride};
  for (std::int64_t first = 0; first < x.sequence; first += kQueriesPerBlock) {
    const std::int64_t keys = std::min(x.sequence, first + kQueriesPerBlock),
                       queries = keys - first;
    Sgemm(queries, keys, x.head_size, scale, {query + first * head.qkv_stride, head.qkv_stride},
          {query + head.part_size, head.qkv_stride, true}, 0, scores, keys);
    for (std::int64_t i = 0; i < queries; ++i) {
      x.log_sum_exp[head.first_log_sum_exp + first + i] =
          Softmax(scores + i * keys, first + i, keys);
    }
    Sgemm(queries, x.head_size, keys, 1, {scores, keys}, value, 0,
          x.output + head.first_output + first * head.output_stride, head.output_stride);
  }
}

/// From scores to probabilities p and from d_p to the gradient of the scores p (d_p - d_output .
/// output).
void BackwardRow(const AttentionBackwardArguments<float>& x, const Head& head,
                 std::int64_t position, std::int64_t keys, float* scores, float* d_scores) {
  const std::int64_t at = head.first_output + position * head.output_stride, visible = position + 1;
  const float* output = x.output + at;
  const float* d_output = x.d_output + at;
  const float mean_d_p =
      SumOf(x.head_size, [=](std::int64_t c) { return output[c] * d_output[c]; });
  const float log_sum_exp = x.log_sum_exp[head.first_log_sum_exp + position];
  for (std::int64_t j = 0; j < visible; ++j) {
    scores[j] = Exp(scores[j] - log_sum_exp);
    d_scores[j] = scores[j] * (d_scores[j] - mean_d_p);
  }
  std::fill(scores + visible, scores + keys, 0.0F);
  std::fill(d_scores + visible, d_scores + keys, 0.0F);
}

// The last block of queries sees all keys: it comes first and overwrites what the others add to.
void BackwardHead(const AttentionBackwardArguments<float>& x, const Head& head, float* scores,
                  float* d_scores) {
  const float scale = 1 / std::sqrt(static_cast<float>(x.head_size));
  const float* all_queries = x.qkv + head.first_qkv;
  const Operand key{all_queries + head.part_size, head.qkv_stride};
  float* d_qkv = x.d_qkv + head.first_qkv;
  const std::int64_t blocks = (x.sequence + kQueriesPerBlock - 1) / kQueriesPerBlock;
  for (std::int64_t block = blocks; block-- > 0;) {
    const std::int64_t first = block * kQueriesPerBlock;
    const std::int64_t keys = std::min(x.sequence, first + kQueriesPerBlock),
                       queries = keys - first;
    const float beta = block == blocks - 1 ? 0.0F : 1.0F;
    const Operand query{all_queries + first * head.qkv_stride, head.qkv_stride};
    const Operand d_output{x.d_output + head.first_output + first * head.output_stride,
                           head.output_stride};
    Sgemm(queries, keys, x.head_size, scale, query, {key.data, key.stride, true}, 0, scores, keys);
    Sgemm(queries, keys, x.head_size, 1, d_output, {key.data + head.part_size, key.stride, true}, 0,
          d_scores, keys);
    for (std::int64_t i = 0; i < queries; ++i) {
      BackwardRow(x, head, first + i, keys, scores + i * keys, d_scores + i * keys);
    }
    Sgemm(queries, x.head_size, keys, scale, {d_scores, keys}, key, 0,
          d_qkv + first * head.qkv_stride, head.qkv_stride);
    Sgemm(keys, x.head_size, queries, scale, {d_scores, keys, true}, query, beta,
          d_qkv + head.part_size, head.qkv_stride);
    Sgemm(keys, x.head_size, queries, 1, {scores, keys, true}, d_output, beta,
          d_qkv + 2 * head.part_size, head.qkv_stride);
  }
}

}  // namespace

void CpuDevice::Attention(const AttentionArguments<float>& x) {
  const std::int64_t per_thread = kQueriesPerBlock * x.sequence;
  scratch_.resize(static_cast<std::size_t>(pool_.threads() * per_thread));
  pool_.For(x.batch * x.heads, [&](std::int64_t index, int thread) {
    ForwardHead(x, HeadAt(x, index), scratch_.data() + thread * per_thread);
  });
}

void CpuDevice::AttentionBackward(const AttentionBackwardArguments<float>& x) {
  const std::int64_t per_thread = 2 * kQueriesPerBlock * x.sequence;
  scratch_.resize(static_cast<std::size_t>(pool_.threads() * per_thread));
  pool_.For(x.batch * x.heads, [&](std::int64_t index, int thread) {
    float* scores = scratch_.data() + thread * per_thread;
    BackwardHead(x, HeadAt(x, index), scores, scores + kQueriesPerBlock * x.sequence);
  });
}

}  // namespace adaptive_train::kernels::cpu
