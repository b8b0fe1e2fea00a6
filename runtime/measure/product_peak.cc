#include "runtime/measure/product_peak.h"

#include <algorithm>
#include <chrono>
#include <thread>

namespace adaptive_train {
namespace {

using Clock = std::chrono::steady_clock;

/// A product of square matrices.
template <class T>
class SquareProduct {
 public:
  SquareProduct(kernels::Device<T>& device, std::int64_t side)
      : device_(device),
        side_(side),
        a_(device, Elements()),
        b_(device, Elements()),
        c_(device, Elements()) {
    a_.Clear();
    b_.Clear();
  }

  /// Computes it once. Returns the seconds that it took.
  double Run() {
    kernels::MatmulArguments<T> product;
    product.rows = product.columns = product.inner = side_;
    product.a = a_.data();
    product.b = b_.data();
    product.c = c_.data();
    device_.Wait();
    const auto begin = Clock::now();
    device_.Matmul(product);
    device_.Wait();
    return std::chrono::duration<double>(Clock::now() - begin).count();
  }
  double Flops() const {
    const auto side = static_cast<double>(side_);
    return 2 * side * side * side;
  }

 private:
  std::size_t Elements() const { return static_cast<std::size_t>(side_ * side_); }

  kernels::Device<T>& device_;
  const std::int64_t side_;
  kernels::Buffer<T> a_, b_, c_;
};

/// A GPU needs more work than a CPU to show what it can.
template <class T>
std::int64_t SideFor(kernels::Device<T>& device) {
  constexpr std::int64_t kSide = 512, kLargest = 4096;
  constexpr double kLongEnough = 1e-3;
  std::int64_t side = kSide;
  while (!device.OnHost() && side < kLargest) {
    SquareProduct<T> product(device, side);
    product.Run();  // builds the kernel
    if (product.Run() >= kLongEnough) break;
    side *= 2;
  }
  return side;
}

}  // namespace

template <class T>
double MeasureProductPeak(kernels::Device<T>& device) {
  constexpr int kBursts = 5;
  constexpr std::chrono::milliseconds kBurst{10}, kPause{10};
  SquareProduct<T> product(device, SideFor(device));
  double least = product.Run();  // builds the kernel
  for (int burst = 0; burst < kBursts; ++burst) {
    if (burst > 0) std::this_thread::sleep_for(kPause);
    const auto until = Clock::now() + kBurst;
    do {
      least = std::min(least, product.Run());
    } while (Clock::now() < until);
  }
  return product.Flops() / least;
}

double RaisedPeak(double peak, double flops, double compute_s) {
  return compute_s > 0 ? std::max(peak, flops / compute_s) : peak;
}

template double MeasureProductPeak(kernels::Device<float>&);
template double MeasureProductPeak(kernels::Device<kernels::BFloat16>&);
template double MeasureProductPeak(kernels::Device<kernels::Float16>&);

}  // namespace adaptive_train
