#include "runtime/measure/product_peak.h"

#include <algorithm>
#include <chrono>

namespace adaptive_train {

double MeasureProductPeak(kernels::Device<float>& device) {
  using Clock = std::chrono::steady_clock;
  constexpr std::int64_t kSide = 512;
  constexpr double kFlops = 2.0 * kSide * kSide * kSide;
  constexpr std::chrono::milliseconds kTime{50};
  kernels::Buffer<float> a(device, kSide * kSide), b(device, kSide * kSide),
      c(device, kSide * kSide);
  a.Clear();
  b.Clear();
  kernels::MatmulArguments<float> product;
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
    device.SquaredNorm(1, c.data());  // returns when the product is there
    best = std::max(best, kFlops / std::chrono::duration<double>(Clock::now() - begin).count());
  }
  return best;
}

}  // namespace adaptive_train
