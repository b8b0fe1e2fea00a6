#include "runtime/measure/device_speed.h"

#include <algorithm>
#include <cmath>
#include <condition_variable>
#include <cstring>
#include <memory>
#include <mutex>
#include <numeric>
#include <thread>
#include <utility>
#include <vector>

#include "core/seconds.h"
#include "kernels/cpu/thread_pool.h"
#include "kernels/make_device.h"
#include "runtime/measure/link_statistics.h"

namespace adaptive_train {
namespace {

/// Repeats `call`, which does `work`, for `seconds` but at least once. Returns work per second.
template <class Call>
double RateOf(double seconds, double work, const Call& call) {
  const double begin = SteadySecondsNow();
  double done = 0, now = begin;
  do {
    call();
    done += work;
    now = SteadySecondsNow();
  } while (now - begin < seconds);
  return done / std::max(1e-9, now - begin);
}

/// A float32 product large enough to be bound by arithmetic.
class Product {
 public:
  explicit Product(int threads)
      : device_(kernels::MakeCpuDevice<float>(threads)),
        a_(*device_, kSize),
        b_(*device_, kSize),
        c_(*device_, kSize) {
    a_.Clear();
    b_.Clear();
    product_.rows = product_.columns = product_.inner = kSide;
    product_.a = a_.data();
    product_.b = b_.data();
    product_.c = c_.data();
    device_->Matmul(product_);  // builds the kernel
  }
  /// FLOP/s.
  double Rate(double seconds) {
    return RateOf(seconds, 2.0 * kSide * kSize, [this] { device_->Matmul(product_); });
  }

 private:
  static constexpr std::int64_t kSide = 512, kSize = kSide * kSide;
  const std::unique_ptr<kernels::Device<float>> device_;
  kernels::Buffer<float> a_, b_, c_;
  kernels::MatmulArguments<float> product_;
};

/// A copy larger than the caches of most processors, but small against a node's memory.
class Copy {
 public:
  explicit Copy(int threads)
      : pool_(threads),
        parts_(static_cast<std::size_t>(threads)),
        from_(std::make_unique<char[]>(kBytes)),
        to_(std::make_unique<char[]>(kBytes)) {}
  /// Bytes per second.
  double Rate(double seconds) {
    const std::size_t share = kBytes / parts_;
    return RateOf(seconds, static_cast<double>(share * parts_), [this, share] {
      pool_.For(static_cast<std::int64_t>(parts_), [this, share](std::int64_t part, int) {
        const std::size_t begin = share * static_cast<std::size_t>(part);
        std::memcpy(to_.get() + begin, from_.get() + begin, share);
      });
    });
  }

 private:
  static constexpr std::size_t kBytes = 32u << 20;
  kernels::cpu::ThreadPool pool_;
  const std::size_t parts_;
  const std::unique_ptr<char[]> from_, to_;
};

/// The time of two threads that wake each other in turn.
double HandoverSeconds() {
  constexpr int kTurns = 200;
  std::mutex mutex;
  std::condition_variable changed;
  int turn = 0;  // even: the first thread's
  const auto play = [&](int parity, std::vector<double>* times) {
    std::unique_lock lock(mutex);
    for (int i = parity; i < kTurns; i += 2) {
      const double asked = SteadySecondsNow();
      changed.wait(lock, [&] { return turn == i; });
      if (times != nullptr && i > 0) times->push_back((SteadySecondsNow() - asked) / 2);
      ++turn;
      changed.notify_one();
    }
  };
  std::vector<double> times;
  std::thread second(play, 1, nullptr);
  play(0, &times);
  second.join();
  return BestQuartile(std::move(times));
}

}  // namespace

DeviceSpeed MeasureDevice(int threads, double seconds) {
  Product product(threads);
  Copy copy(threads);
  std::vector<double> products, copies;
  for (int burst = 0; burst < kDeviceBursts; ++burst) {
    products.push_back(product.Rate(0.7 * seconds / kDeviceBursts));
    copies.push_back(copy.Rate(0.3 * seconds / kDeviceBursts));
  }
  const RepeatedRate flops = RepeatedRateOf(std::move(products));
  return {flops.median, flops.spread, RepeatedRateOf(std::move(copies)).median, HandoverSeconds()};
}

RepeatedRate RepeatedRateOf(std::vector<double> rates) {
  RepeatedRate rate;
  if (rates.empty()) return rate;
  std::sort(rates.begin(), rates.end());
  const std::size_t n = rates.size();
  rate.median = (rates[(n - 1) / 2] + rates[n / 2]) / 2;
  if (n < 2 || rate.median <= 0) return rate;
  const double mean = std::accumulate(rates.begin(), rates.end(), 0.0) / static_cast<double>(n);
  double squares = 0;
  for (const double one : rates) squares += (one - mean) * (one - mean);
  rate.spread = std::sqrt(squares / static_cast<double>(n - 1)) / rate.median;
  return rate;
}

}  // namespace adaptive_train
