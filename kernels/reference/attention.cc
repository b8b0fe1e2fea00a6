// Causal attention as plain loops.
#include <algorithm>
#include <cmath>

#include "kernels/reference/reference_device.h"

namespace adaptive_train::kernels::reference {

namespace {

/// Row `position` of part 0 (query), 1 (key) or 2 (value) of one sample and head.
template <class Arguments, class T>
T* Row(const Arguments& x, T* qkv, std::int64_t sample, std::int64_t head, int part,
       std::int64_t position) {
  const std::int64_t token = sample * x.sequence + position;
  return qkv + ((token * 3 + part) * x.heads + head) * x.head_size;
}

template <class Arguments, class T>
T* OutputRow(const Arguments& x, T* output, std::int64_t sample, std::int64_t head,
             std::int64_t position) {
  return output + ((sample * x.sequence + position) * x.heads + head) * x.head_size;
}

template <class T>
T Dot(std::int64_t count, const T* a, const T* b) {
  T sum = 0;
  for (std::int64_t i = 0; i < count; ++i) sum += a[i] * b[i];
  return sum;
}

template <class T>
void AddScaled(std::int64_t count, T factor, const T* from, T* to) {
  for (std::int64_t i = 0; i < count; ++i) to[i] += factor * from[i];
}

template <class T>
void ForwardRow(const AttentionArguments<T>& x, std::int64_t sample, std::int64_t head,
                std::int64_t i) {
  const T scale = 1 / std::sqrt(static_cast<T>(x.head_size));
  const T* query = Row(x, x.qkv, sample, head, 0, i);
  const auto score = [&](std::int64_t j) {
    return scale * Dot(x.head_size, query, Row(x, x.qkv, sample, head, 1, j));
  };
  T largest = score(0), sum = 0;
  for (std::int64_t j = 1; j <= i; ++j) largest = std::max(largest, score(j));
  for (std::int64_t j = 0; j <= i; ++j) sum += std::exp(score(j) - largest);
  const T log_sum_exp = largest + std::log(sum);
  T* output = OutputRow(x, x.output, sample, head, i);
  std::fill(output, output + x.head_size, T{0});
  for (std::int64_t j = 0; j <= i; ++j) {
    AddScaled(x.head_size, std::exp(score(j) - log_sum_exp), Row(x, x.qkv, sample, head, 2, j),
              output);
  }
  x.log_sum_exp[(sample * x.heads + head) * x.sequence + i] = log_sum_exp;
}

// With p the probabilities of query i and d_p[j] = d_output . value[j]:
// d_score[j] = p[j] (d_p[j] - sum over k of p[k] d_p[k]), where that sum is d_output . output.
template <class T>
void BackwardRow(const AttentionBackwardArguments<T>& x, std::int64_t sample, std::int64_t head,
                 std::int64_t i) {
  const T scale = 1 / std::sqrt(static_cast<T>(x.head_size));
  const T* query = Row(x, x.qkv, sample, head, 0, i);
  const T* d_output = OutputRow(x, x.d_output, sample, head, i);
  const T mean_d_p = Dot(x.head_size, d_output, OutputRow(x, x.output, sample, head, i));
  const T log_sum_exp = x.log_sum_exp[(sample * x.heads + head) * x.sequence + i];
  for (std::int64_t j = 0; j <= i; ++j) {
    const T* key = Row(x, x.qkv, sample, head, 1, j);
    const T probability = std::exp(scale * Dot(x.head_size, query, key) - log_sum_exp);
    const T d_p = Dot(x.head_size, d_output, Row(x, x.qkv, sample, head, 2, j));
    const T d_score = probability * (d_p - mean_d_p) * scale;
    AddScaled(x.head_size, d_score, key, Row(x, x.d_qkv, sample, head, 0, i));
    AddScaled(x.head_size, d_score, query, Row(x, x.d_qkv, sample, head, 1, j));
    AddScaled(x.head_size, probability, d_output, Row(x, x.d_qkv, sample, head, 2, j));
  }
}

}  // namespace

template <class T>
void ReferenceDevice<T>::Attention(const AttentionArguments<T>& x) {
  for (std::int64_t sample = 0; sample < x.batch; ++sample) {
    for (std::int64_t head = 0; head < x.heads; ++head) {
      for (std::int64_t i = 0; i < x.sequence; ++i) ForwardRow(x, sample, head, i);
    }
  }
}

template <class T>
void ReferenceDevice<T>::AttentionBackward(const AttentionBackwardArguments<T>& x) {
  std::fill(x.d_qkv, x.d_qkv + x.batch * x.sequence * 3 * x.heads * x.head_size, T{0});
  for (std::int64_t sample = 0; sample < x.batch; ++sample) {
    for (std::int64_t head = 0; head < x.heads; ++head) {
      for (std::int64_t i = 0; i < x.sequence; ++i) BackwardRow(x, sample, head, i);
    }
  }
}

template void ReferenceDevice<float>::Attention(const AttentionArguments<float>&);
template void ReferenceDevice<double>::Attention(const AttentionArguments<double>&);
template void ReferenceDevice<float>::AttentionBackward(const AttentionBackwardArguments<float>&);
template void ReferenceDevice<double>::AttentionBackward(const AttentionBackwardArguments<double>&);

}  // namespace adaptive_train::kernels::reference
