#include "runtime/measure/product_peak.h"

#include <algorithm>
#include <chrono>

namespace adaptive_train {

template <class T>
double MeasureProductPeak(kernels::Device<T>& device) {
  using Clock = std::chrono::steady_clock;
  constexpr std::int64_t kSide = 512;
  constexpr double kFlops = 2.0 * kSide * kSide * kSide;
  constexpr std::chrono::milliseconds kTime{50};
  kernels::Buffer<T> a(device, kSide * kSide), b(device, kSide * kSide), c(device, kSide * kSide);
  kernels::Buffer<kernels::Accumulator<T>> one(device, 1);
  one.Clear();
  a.Clear();
  b.Clear();
  kernels::MatmulArguments<T> product;
  product.rows = product.columns = product.inner = kSide;
  product.a = a.data();
  product.b = b.data();
  product.c = c.data();
  double best = 0;
  const auto until = Clock::now() + kTime;
  // The first call builds the kernel, so at least two count.
  for (int call = 0; call < 3 || Clock::now() < until; ++call) {
    const auto begin = Clock::now();
    device.Matmul(product);
    device.SquaredNorm(1, one.data());  // returns when the product is there
    best = std::max(best, kFlops / std::chrono::duration<double>(Clock::now() - begin).count());
  }
  return best;
}

template double MeasureProductPeak(kernels::Device<float>&);
template double MeasureProductPeak(kernels::Device<kernels::BFloat16>&);
template double MeasureProductPeak(kernels::Device<kernels::Float16>&);

}  // namespace adaptive_train
