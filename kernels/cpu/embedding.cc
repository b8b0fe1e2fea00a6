// The embedding row by row; its gradient is split among the threads by columns.
#include "kernels/embedding.h"

#include <algorithm>

#include "kernels/cpu/cpu_device.h"
#include "kernels/cpu/piece_functions.h"
#include "kernels/cpu/thread_pool.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/embedding.cc"
#include <hwy/foreach_target.h>

#include "kernels/cpu/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace adaptive_train::kernels::cpu {
namespace HWY_NAMESPACE {
namespace {

template <class T>
void EmbeddingRows(const EmbeddingArguments<T>& x, std::int64_t begin, std::int64_t end) {
  for (std::int64_t row = begin; row < end; ++row) {
    const T* token = x.tokens[row] < 0 ? nullptr : x.token_weight + x.tokens[row] * x.columns;
    const T* position =
        x.position_weight == nullptr ? nullptr : x.position_weight + row % x.sequence * x.columns;
    const T* type = x.type_weight;
    const T* first = x.token_last ? nullptr : token;
    const T* last = x.token_last ? token : nullptr;
    T* output = x.output + row * x.columns;
    ForVectors(0, x.columns, [=](std::int64_t i, auto part) HWY_ATTR {
      Floats sum = first == nullptr ? Set(0) : Load(first + i, part);
      if (position != nullptr) sum = hn::Add(sum, Load(position + i, part));
      if (type != nullptr) sum = hn::Add(sum, Load(type + i, part));
      if (last != nullptr) sum = hn::Add(sum, Load(last + i, part));
      Store(sum, output + i, part);
    });
  }
}

// Each column has its own sum, so any cut of the columns gives the same bits.
template <class T>
void BackwardColumns(const EmbeddingBackwardArguments<T>& x, std::int64_t begin, std::int64_t end) {
  for (std::int64_t row = 0; row < x.batch * x.sequence; ++row) {
    const T* d_output = x.d_output + row * x.columns;
    const auto row_of = [&x](float* weight, std::int64_t at) {
      return weight == nullptr || at < 0 ? nullptr : weight + at * x.columns;
    };
    float* d_token = row_of(x.d_token_weight, x.tokens[row]);
    float* d_position = row_of(x.d_position_weight, row % x.sequence);
    float* d_type = x.d_type_weight;
    ForVectors(begin, end, [=](std::int64_t i, auto part) HWY_ATTR {
      const Floats d = Load(d_output + i, part);
      if (d_token != nullptr) Store(hn::Add(Load(d_token + i, part), d), d_token + i, part);
      if (d_position != nullptr)
        Store(hn::Add(Load(d_position + i, part), d), d_position + i, part);
      if (d_type != nullptr) Store(hn::Add(Load(d_type + i, part), d), d_type + i, part);
    });
  }
}

PieceFunctions<EmbeddingArguments> EmbeddingForward() {
  return {EmbeddingRows<float>, EmbeddingRows<BFloat16>, EmbeddingRows<Float16>};
}
PieceFunctions<EmbeddingBackwardArguments> EmbeddingBackward() {
  return {BackwardColumns<float>, BackwardColumns<BFloat16>, BackwardColumns<Float16>};
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace adaptive_train::kernels::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace adaptive_train::kernels::cpu {
namespace {
HWY_EXPORT(EmbeddingForward);
HWY_EXPORT(EmbeddingBackward);
}  // namespace

template <class T>
void CpuDevice<T>::Embedding(const EmbeddingArguments<T>& x) {
  const auto rows = HWY_DYNAMIC_DISPATCH(EmbeddingForward)().template On<T>();
  pool_.ForPieces(x.batch * x.sequence, RowsPerPiece(x.columns),
                  [&](std::int64_t begin, std::int64_t end) { rows(x, begin, end); });
}

template <class T>
void CpuDevice<T>::EmbeddingBackward(const EmbeddingBackwardArguments<T>& x) {
  constexpr std::int64_t kLine = 64;  // columns: whole cache lines for every T
  const auto columns = HWY_DYNAMIC_DISPATCH(EmbeddingBackward)().template On<T>();
  const std::int64_t share = (x.columns + pool_.threads() - 1) / pool_.threads();
  pool_.ForPieces(x.columns, std::max(kLine, (share + kLine - 1) / kLine * kLine),
                  [&](std::int64_t begin, std::int64_t end) { columns(x, begin, end); });
}

template void CpuDevice<float>::Embedding(const EmbeddingArguments<float>&);
template void CpuDevice<BFloat16>::Embedding(const EmbeddingArguments<BFloat16>&);
template void CpuDevice<Float16>::Embedding(const EmbeddingArguments<Float16>&);
template void CpuDevice<float>::EmbeddingBackward(const EmbeddingBackwardArguments<float>&);
template void CpuDevice<BFloat16>::EmbeddingBackward(const EmbeddingBackwardArguments<BFloat16>&);
template void CpuDevice<Float16>::EmbeddingBackward(const EmbeddingBackwardArguments<Float16>&);

}  // namespace adaptive_train::kernels::cpu
#endif
