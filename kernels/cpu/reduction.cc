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
using DoubleHalfTag = hn::Rebind<float, DoubleTag>;  // as many floats as Doubles has doubles

template <bool kSquared, class Part>
HWY_INLINE Doubles Add(Doubles sum, const float* from, Part part) {
  const Doubles value = hn::PromoteTo(DoubleTag(), LoadPart(DoubleHalfTag(), from, part));
  return kSquared ? hn::MulAdd(value, value, sum) : hn::Add(sum, value);
}

/// Four sums side by side, since an addition takes longer than loading its operand.
template <bool kSquared>
double SumOfPiece(const float* values, std::int64_t count) {
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(DoubleTag()));
  Doubles s0 = hn::Zero(DoubleTag()), s1 = s0, s2 = s0, s3 = s0;
  std::int64_t i = 0;
  for (; i + 4 * lanes <= count; i += 4 * lanes) {
    s0 = Add<kSquared>(s0, values + i, Whole());
    s1 = Add<kSquared>(s1, values + i + lanes, Whole());
    s2 = Add<kSquared>(s2, values + i + 2 * lanes, Whole());
    s3 = Add<kSquared>(s3, values + i + 3 * lanes, Whole());
  }
  for (; i + lanes <= count; i += lanes) s0 = Add<kSquared>(s0, values + i, Whole());
  if (i < count) s1 = Add<kSquared>(s1, values + i, First{static_cast<std::size_t>(count - i)});
  return hn::GetLane(hn::SumOfLanes(DoubleTag(), hn::Add(hn::Add(s0, s1), hn::Add(s2, s3))));
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
