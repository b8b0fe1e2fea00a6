// LayerNorm and RmsNorm: each row is read from memory once, also in backward.
#include "kernels/norm.h"

#include <algorithm>
#include <cmath>

#include "kernels/cpu/cpu_device.h"
#include "kernels/cpu/passes.h"
#include "kernels/cpu/piece_functions.h"
#include "kernels/cpu/thread_pool.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/norm.cc"
#include <hwy/foreach_target.h>

#include "kernels/cpu/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace adaptive_train::kernels::cpu {
namespace HWY_NAMESPACE {
namespace {

enum class Norm { kLayer, kRms };

template <Norm kNorm, class T>
void NormRows(const NormArguments<T>& x, std::int64_t begin, std::int64_t end) {
  const double columns = static_cast<double>(x.columns);
  for (std::int64_t row = begin; row < end; ++row) {
    const T* input = x.input + row * x.columns;
    const T* weight = x.weight;
    const T* bias = x.bias;
    T* output = x.output + row * x.columns;
    float mean = 0;
    if constexpr (kNorm == Norm::kLayer) {
      mean = static_cast<float>(SumOf(x.columns, [=](std::int64_t i, auto part)
                                                     HWY_ATTR { return Load(input + i, part); }) /
                                columns);
      x.mean[row] = mean;
    }
    const Floats center = Set(mean);
    const float squares = SumOf(x.columns, [=](std::int64_t i, auto part) HWY_ATTR {
      const Floats d = Keep(hn::Sub(Load(input + i, part), center), part);
      return hn::Mul(d, d);
    });
    const auto reciprocal_std = static_cast<float>(1 / std::sqrt(squares / columns + x.epsilon));
    x.reciprocal_std[row] = reciprocal_std;
    const Floats scale = Set(reciprocal_std);
    ForVectors(0, x.columns, [=](std::int64_t i, auto part) HWY_ATTR {
      const Floats normal = hn::Mul(hn::Sub(Load(input + i, part), center), scale);
      const Floats weighed = hn::Mul(normal, Load(weight + i, part));
      if constexpr (kNorm == Norm::kLayer) {
        Store(hn::Add(weighed, Load(bias + i, part)), output + i, part);
      } else {
        Store(weighed, output + i, part);
      }
    });
  }
}

/// With n = (input - mean) * reciprocal_std and g = d_output * weight:
///   d_input = reciprocal_std * (g - mean(g) - n * mean(g * n)); RmsNorm has no mean(g) term
///   d_weight += d_output * n and d_bias += d_output, summed over rows
template <Norm kNorm, class T>
void BackwardRow(const NormBackwardArguments<T>& x, std::int64_t row, float* d_weight,
                 float* d_bias) {
  const T* input = x.input + row * x.columns;
  const T* d_output = x.d_output + row * x.columns;
  const T* weight = x.weight;
  T* d_input = x.d_input + row * x.columns;
  const Floats mean = kNorm == Norm::kLayer ? Set(x.mean[row]) : Zero();
  const Floats scale = Set(x.reciprocal_std[row]);
  Floats sum_g = Zero(), sum_gn = Zero();
  ForVectors(0, x.columns, [&](std::int64_t i, auto part) HWY_ATTR {
    const Floats d = Load(d_output + i, part), g = hn::Mul(d, Load(weight + i, part));
    const Floats n = hn::Mul(hn::Sub(Load(input + i, part), mean), scale);
    sum_gn = hn::MulAdd(g, n, sum_gn);
    Store(hn::MulAdd(d, n, Load(d_weight + i, part)), d_weight + i, part);
    if constexpr (kNorm == Norm::kLayer) {
      sum_g = hn::Add(sum_g, g);
      Store(hn::Add(Load(d_bias + i, part), d), d_bias + i, part);
    }
  });
  const auto columns = static_cast<float>(x.columns);
  const Floats mean_g = Set(SumOf(sum_g) / columns), mean_gn = Set(SumOf(sum_gn) / columns);
  const bool accumulate = x.accumulate;
  ForVectors(0, x.columns, [=](std::int64_t i, auto part) HWY_ATTR {
    const Floats g = hn::Mul(Load(d_output + i, part), Load(weight + i, part));
    const Floats n = hn::Mul(hn::Sub(Load(input + i, part), mean), scale);
    const Floats d = hn::Mul(scale, hn::NegMulAdd(n, mean_gn, hn::Sub(g, mean_g)));
    Store(accumulate ? hn::Add(Load(d_input + i, part), d) : d, d_input + i, part);
  });
}

template <Norm kNorm, class T>
void BackwardRows(const NormBackwardPass<T>& pass, std::int64_t begin, std::int64_t end) {
  const std::int64_t columns = pass.x.columns;
  float* d_weight = pass.partial + begin / pass.rows_per_piece * 2 * columns;
  float* d_bias = d_weight + columns;
  std::fill(d_weight, d_bias + columns, 0.0F);
  for (std::int64_t row = begin; row < end; ++row)
    BackwardRow<kNorm>(pass.x, row, d_weight, d_bias);
}

template <Norm kNorm>
PieceFunctions<NormArguments> ForwardOf() {
  return {NormRows<kNorm, float>, NormRows<kNorm, BFloat16>, NormRows<kNorm, Float16>};
}
template <Norm kNorm>
PieceFunctions<NormBackwardPass> BackwardOf() {
  return {BackwardRows<kNorm, float>, BackwardRows<kNorm, BFloat16>, BackwardRows<kNorm, Float16>};
}
PieceFunctions<NormArguments> LayerNormForward() { return ForwardOf<Norm::kLayer>(); }
PieceFunctions<NormArguments> RmsNormForward() { return ForwardOf<Norm::kRms>(); }
PieceFunctions<NormBackwardPass> LayerNormBackward() { return BackwardOf<Norm::kLayer>(); }
PieceFunctions<NormBackwardPass> RmsNormBackward() { return BackwardOf<Norm::kRms>(); }

/// sum[i] += the partial sums of column i, which are `stride` apart, in order.
void AddPartial(const float* partial, std::int64_t pieces, std::int64_t stride,
                std::int64_t columns, float* sum) {
  for (std::int64_t piece = 0; piece < pieces; ++piece) {
    const float* from = partial + piece * stride;
    ForVectors(0, columns, [=](std::int64_t i, auto part) HWY_ATTR {
      Store(hn::Add(Load(sum + i, part), Load(from + i, part)), sum + i, part);
    });
  }
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace adaptive_train::kernels::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace adaptive_train::kernels::cpu {
namespace {

HWY_EXPORT(LayerNormForward);
HWY_EXPORT(RmsNormForward);
HWY_EXPORT(LayerNormBackward);
HWY_EXPORT(RmsNormBackward);
HWY_EXPORT(AddPartial);

template <class T>
void Forward(ThreadPool& pool, const PieceFunctions<NormArguments>& functions,
             const NormArguments<T>& x) {
  const auto rows = functions.On<T>();
  pool.ForPieces(x.rows, RowsPerPiece(x.columns),
                 [&](std::int64_t begin, std::int64_t end) { rows(x, begin, end); });
}

// Every piece sums its rows' gradients of weights separately. There are few pieces, so that adding
// up their sums costs little.
std::int64_t RowsPerBackwardPiece(std::int64_t rows) {
  constexpr std::int64_t kFewestRows = 32, kMostPieces = 64;
  return std::max(kFewestRows, (rows + kMostPieces - 1) / kMostPieces);
}

/// The size of the partial sums in floats: [pieces, 2, columns].
template <class T>
std::int64_t PartialSize(const NormBackwardArguments<T>& x) {
  const std::int64_t rows_per_piece = RowsPerBackwardPiece(x.rows);
  return (x.rows + rows_per_piece - 1) / rows_per_piece * 2 * x.columns;
}

template <class T>
void Backward(ThreadPool& pool, float* partial, const PieceFunctions<NormBackwardPass>& functions,
              const NormBackwardArguments<T>& x, bool has_bias) {
  const NormBackwardPass<T> pass{x, partial, RowsPerBackwardPiece(x.rows)};
  const auto rows = functions.On<T>();
  pool.ForPieces(x.rows, pass.rows_per_piece,
                 [&](std::int64_t begin, std::int64_t end) { rows(pass, begin, end); });
  const auto add = HWY_DYNAMIC_DISPATCH(AddPartial);
  const std::int64_t stride = 2 * x.columns, pieces = PartialSize(x) / stride;
  add(partial, pieces, stride, x.columns, x.d_weight);
  if (has_bias) add(partial + x.columns, pieces, stride, x.columns, x.d_bias);
}

}  // namespace

template <class T>
void CpuDevice<T>::LayerNorm(const NormArguments<T>& x) {
  Forward(pool_, HWY_DYNAMIC_DISPATCH(LayerNormForward)(), x);
}
template <class T>
void CpuDevice<T>::RmsNorm(const NormArguments<T>& x) {
  Forward(pool_, HWY_DYNAMIC_DISPATCH(RmsNormForward)(), x);
}
template <class T>
void CpuDevice<T>::LayerNormBackward(const NormBackwardArguments<T>& x) {
  Backward(pool_, Scratch(PartialSize(x)), HWY_DYNAMIC_DISPATCH(LayerNormBackward)(), x, true);
}
template <class T>
void CpuDevice<T>::RmsNormBackward(const NormBackwardArguments<T>& x) {
  Backward(pool_, Scratch(PartialSize(x)), HWY_DYNAMIC_DISPATCH(RmsNormBackward)(), x, false);
}

template void CpuDevice<float>::LayerNorm(const NormArguments<float>&);
template void CpuDevice<BFloat16>::LayerNorm(const NormArguments<BFloat16>&);
template void CpuDevice<Float16>::LayerNorm(const NormArguments<Float16>&);
template void CpuDevice<float>::RmsNorm(const NormArguments<float>&);
template void CpuDevice<BFloat16>::RmsNorm(const NormArguments<BFloat16>&);
template void CpuDevice<Float16>::RmsNorm(const NormArguments<Float16>&);
template void CpuDevice<float>::LayerNormBackward(const NormBackwardArguments<float>&);
template void CpuDevice<BFloat16>::LayerNormBackward(const NormBackwardArguments<BFloat16>&);
template void CpuDevice<Float16>::LayerNormBackward(const NormBackwardArguments<Float16>&);
template void CpuDevice<float>::RmsNormBackward(const NormBackwardArguments<float>&);
template void CpuDevice<BFloat16>::RmsNormBackward(const NormBackwardArguments<BFloat16>&);
template void CpuDevice<Float16>::RmsNormBackward(const NormBackwardArguments<Float16>&);

}  // namespace adaptive_train::kernels::cpu
#endif
