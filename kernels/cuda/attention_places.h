// Where attention's queries, keys and values lie. Only .cu files include it.
#pragma once

#include <cuda_runtime.h>

#include <cmath>
#include <cstdint>

#include "kernels/attention.h"

namespace adaptive_train::kernels::cuda {

/// Where a sample's and head's rows lie.
struct HeadRows {
  std::int64_t first, stride, count;  // of elements, elements and rows
  int size;

  template <class T>
  __device__ T* At(T* array, std::int64_t row) const {
    return array + first + row * stride;
  }
};

struct HeadPlace {
  AttentionShape shape;
  std::int64_t sample, head, kv_head;

  __device__ HeadRows OfQkv(std::int64_t of_token) const {
    const std::int64_t stride = (shape.heads + 2 * shape.kv_heads) * shape.head_size;
    return {sample * shape.sequence * stride + of_token * shape.head_size, stride, shape.sequence,
            static_cast<int>(shape.head_size)};
  }
  __device__ HeadRows Queries() const { return OfQkv(head); }
  __device__ HeadRows Keys() const { return OfQkv(shape.heads + kv_head); }
  __device__ HeadRows Values() const { return OfQkv(shape.heads + shape.kv_heads + kv_head); }
  __device__ HeadRows Outputs() const {
    const std::int64_t stride = shape.heads * shape.head_size;
    return {sample * shape.sequence * stride + head * shape.head_size, stride, shape.sequence,
            static_cast<int>(shape.head_size)};
  }
  /// The first of the head's values that each query has one of.
  __device__ std::int64_t PerQuery() const {
    return (sample * shape.heads + head) * shape.sequence;
  }
};

/// The index-th of all samples' query heads.
__device__ inline HeadPlace PlaceOf(const AttentionShape& shape, std::int64_t index) {
  const std::int64_t head = index % shape.heads;
  return {shape, index / shape.heads, head, head / (shape.heads / shape.kv_heads)};
}

/// Whether a query sees a key.
__device__ inline bool Sees(const AttentionShape& shape, std::int64_t query, std::int64_t key) {
  return key < shape.sequence && (!shape.causal || key <= query);
}

inline float ScaleOf(const AttentionShape& shape) {
  return 1 / std::sqrt(static_cast<float>(shape.head_size));
}

}  // namespace adaptive_train::kernels::cuda
