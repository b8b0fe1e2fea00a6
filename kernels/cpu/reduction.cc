// Sums over an array in double.

#include <numeric>

#include "kernels/cpu/cpu_device.h"
#include "kernels/cpu/piece_functions.h"
#include "kernels/cpu/thread_pool.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/reduction.cc"
#include <hwy/foreach_target.h>

#include "kernels/cpu/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace adaptive_train::kernels::cpu {
namespace HWY_NAMESPACE {
namespace {

using DoubleTag = hn::ScalableTag<double>;
using Doubles = hn::Vec<DoubleTag>;
using DoubleHalfTag = hn::Rebind<float, DoubleTag>;  // as many floats as DoubleTag has doubles

/// The number of running sums is independent of the vector size, so that every instruction set
/// gives the same bits: each rank computes the gradient norm by itself. Squares of floats are exact
/// in double, fused or not.
constexpr std::int64_t kSums = 16;

template <bool kSquared>
HWY_INLINE Doubles Add(Doubles sum, const float* from) {
  const Doubles value = hn::PromoteTo(DoubleTag(), LoadPart(DoubleHalfTag(), from, Whole()));
  return kSquared ? hn::MulAdd(value, value, sum) : hn::Add(sum, value);
}

template <bool kSquared>
double SumOfPiece(const float* values, std::int64_t count) {
  constexpr auto kWidth = static_cast<std::int64_t>(hn::MaxLanes(DoubleTag()));
  Doubles sums[kSums / kWidth];
  for (Doubles& sum : sums) sum = hn::Zero(DoubleTag());
  std::int64_t i = 0;
  for (; i + kSums <= count; i += kSums) {
    for (std::int64_t v = 0; v < kSums / kWidth; ++v)
      sums[v] = Add<kSquared>(sums[v], values + i + v * kWidth);
  }
  double lanes[kSums];
  for (std::int64_t v = 0; v < kSums / kWidth; ++v)
    hn::StoreU(sums[v], DoubleTag(), lanes + v * kWidth);
  for (std::int64_t lane = 0; i < count; ++i, ++lane) {
    const double value = values[i];
    lanes[lane] += kSquared ? value * value : value;
  }
  for (std::int64_t width = kSums / 2; width > 0; width /= 2) {
    for (std::int64_t lane = 0; lane < width; ++lane) lanes[lane] += lanes[lane + width];
  }
  return lanes[0];
}

double SumPiece(const float* values, std::int64_t count) {
  return SumOfPiece<false>(values, count);
}
double SquaresPiece(const float* values, std::int64_t count) {
  return SumOfPiece<true>(values, count);
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace adaptive_train::kernels::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace adaptive_train::kernels::cpu {
namespace {

HWY_EXPORT(SumPiece);
HWY_EXPORT(SquaresPiece);

double SumOfPieces(ThreadPool& pool, std::vector<double>& partial, std::int64_t count,
                   const float* values, double (*piece)(const float*, std::int64_t)) {
  partial.assign(static_cast<std::size_t>((count + kElementsPerPiece - 1) / kElementsPerPiece), 0);
  pool.ForPieces(count, kElementsPerPiece, [&](std::int64_t begin, std::int64_t end) {
    partial[static_cast<std::size_t>(begin / kElementsPerPiece)] =
        piece(values + begin, end - begin);
  });
  return std::accumulate(partial.begin(), partial.end(), 0.0);
}

}  // namespace

template <class T>
double CpuDevice<T>::Sum(std::int64_t count, const Accumulator<T>* values) {
  return SumOfPieces(pool_, partial_, count, values, HWY_DYNAMIC_DISPATCH(SumPiece));
}

template <class T>
double CpuDevice<T>::SquaredNorm(std::int64_t count, const Accumulator<T>* values) {
  return SumOfPieces(pool_, partial_, count, values, HWY_DYNAMIC_DISPATCH(SquaresPiece));
}

template double CpuDevice<float>::Sum(std::int64_t, const float*);
template double CpuDevice<BFloat16>::Sum(std::int64_t, const float*);
template double CpuDevice<Float16>::Sum(std::int64_t, const float*);
template double CpuDevice<float>::SquaredNorm(std::int64_t, const float*);
template double CpuDevice<BFloat16>::SquaredNorm(std::int64_t, const float*);
template double CpuDevice<Float16>::SquaredNorm(std::int64_t, const float*);

}  // namespace adaptive_train::kernels::cpu
#endif
