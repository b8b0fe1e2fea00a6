// Attention as plain loops.
#include <algorithm>
#include <cmath>

#include "kernels/reference/reference_device.h"

namespace adaptive_train::kernels::reference {

namespace {

/// A query's sample, head and position, and where its rows lie.
struct Query {
  const AttentionShape& shape;
  std::int64_t sample, head, position;

  std::int64_t Keys() const { return shape.causal ? position + 1 : shape.sequence; }
  std::int64_t KvHead() const { return head / (shape.heads / shape.kv_heads); }
  std::int64_t QueryRow() const { return Row(position, head); }
  std::int64_t KeyRow(std::int64_t j) const { return Row(j, shape.heads + KvHead()); }
  std::int64_t ValueRow(std::int64_t j) const {
    return Row(j, shape.heads + shape.kv_heads + KvHead());
  }
  std::int64_t OutputRow() const {
    return ((sample * shape.sequence + position) * shape.heads + head) * shape.head_size;
  }
  std::int64_t LogSumExp() const {
    return (sample * shape.heads + head) * shape.sequence + position;
  }

 private:
  std::int64_t Row(std::int64_t at, std::int64_t of_token) const {
    const std::int64_t token = sample * shape.sequence + at;
    return (token * (shape.heads + 2 * shape.kv_heads) + of_token) * shape.head_size;
  }
};

template <class Body>
void ForEachQuery(const AttentionShape& shape, const Body& body) {
  for (std::int64_t sample = 0; sample < shape.batch; ++sample) {
    for (std::int64_t head = 0; head < shape.heads; ++head) {
      for (std::int64_t i = 0; i < shape.sequence; ++i) body(Query{shape, sample, head, i});
    }
  }
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
void ForwardRow(const AttentionArguments<T>& x, const Query& query) {
  const std::int64_t size = x.shape.head_size;
  const T scale = 1 / std::sqrt(static_cast<T>(size));
  const auto score = [&](std::int64_t j) {
    return scale * Dot(size, x.qkv + query.QueryRow(), x.qkv + query.KeyRow(j));
  };
  T largest = score(0), sum = 0;
  for (std::int64_t j = 1; j < query.Keys(); ++j) largest = std::max(largest, score(j));
  for (std::int64_t j = 0; j < query.Keys(); ++j) sum += std::exp(score(j) - largest);
  const T log_sum_exp = largest + std::log(sum);
  T* output = x.output + query.OutputRow();
  std::fill(output, output + size, T{0});
  for (std::int64_t j = 0; j < query.Keys(); ++j) {
    AddScaled(size, std::exp(score(j) - log_sum_exp), x.qkv + query.ValueRow(j), output);
  }
  x.log_sum_exp[query.LogSumExp()] = log_sum_exp;
}

// With p the probabilities of query i and d_p[j] = d_output . value[j]:
// d_score[j] = p[j] (d_p[j] - sum over k of p[k] d_p[k]), where that sum is d_output . output.
template <class T>
void BackwardRow(const AttentionBackwardArguments<T>& x, const Query& query) {
  const std::int64_t size = x.shape.head_size;
  const T scale = 1 / std::sqrt(static_cast<T>(size));
  const T* d_output = x.d_output + query.OutputRow();
  const T mean_d_p = Dot(size, d_output, x.output + query.OutputRow());
  const T log_sum_exp = x.log_sum_exp[query.LogSumExp()];
  for (std::int64_t j = 0; j < query.Keys(); ++j) {
    const T *from_query = x.qkv + query.QueryRow(), *key = x.qkv + query.KeyRow(j);
    const T probability = std::exp(scale * Dot(size, from_query, key) - log_sum_exp);
    const T d_p = Dot(size, d_output, x.qkv + query.ValueRow(j));
    const T d_score = probability * (d_p - mean_d_p) * scale;
    AddScaled(size, d_score, key, x.d_qkv + query.QueryRow());
    AddScaled(size, d_score, from_query, x.d_qkv + query.KeyRow(j));
    AddScaled(size, probability, d_output, x.d_qkv + query.ValueRow(j));
  }
}

}  // namespace

template <class T>
void ReferenceDevice<T>::Attention(const AttentionArguments<T>& x) {
  ForEachQuery(x.shape, [&](const Query& query) { ForwardRow(x, query); });
}

template <class T>
void ReferenceDevice<T>::AttentionBackward(const AttentionBackwardArguments<T>& x) {
  const AttentionShape& shape = x.shape;
  const std::int64_t heads = shape.heads + 2 * shape.kv_heads;
  std::fill_n(x.d_qkv, shape.batch * shape.sequence * heads * shape.head_size, T{0});
  ForEachQuery(shape, [&](const Query& query) { BackwardRow(x, query); });
}

template void ReferenceDevice<float>::Attention(const AttentionArguments<float>&);
template void ReferenceDevice<double>::Attention(const AttentionArguments<double>&);
template void ReferenceDevice<float>::AttentionBackward(const AttentionBackwardArguments<float>&);
template void ReferenceDevice<double>::AttentionBackward(const AttentionBackwardArguments<double>&);

}  // namespace adaptive_train::kernels::reference
