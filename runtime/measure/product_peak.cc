#include "runtime/measure/product_peak.h"

#include <algorithm>
#include <chrono>
#include <thread>

namespace adaptive_train {

template <class T>
double MeasureProductPeak(kernels::Device<T>& device) {
  using Clock = std::chrono::steady_clock;
  constexpr std::int64_t kSide = 512;
  constexpr double kFlops = 2.0 * kSide * kSide * kSide;
  constexpr int kBursts = 5;
  constexpr std::chrono::milliseconds kBurst{10}, kPause{10};
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
  const auto product_once = [&] {
    const auto begin = Clock::now();
    device.Matmul(product);
    device.SquaredNorm(1, one.data());  // returns when the product is done
    const auto end = Clock::now();
    best = std::max(best, kFlops / std::chrono::duration<double>(end - begin).count());
    return end;
  };
  product_once();  // builds the kernel
  for (int burst = 0; burst < kBursts; ++burst) {
    if (burst > 0) std::this_thread::sleep_for(kPause);
    const auto until = Clock::now() + kBurst;
    while (product_once() < until) {
    }
  }
  return best;
}

double RaisedPeak(double peak, double flops, double compute_s) {
  return compute_s > 0 ? std::max(peak, flops / compute_s) : peak;
}

template double MeasureProductPeak(kernels::Device<float>&);
template double MeasureProductPeak(kernels::Device<kernels::BFloat16>&);
template double MeasureProductPeak(kernels::Device<kernels::Float16>&);

}  // namespace adaptive_train
