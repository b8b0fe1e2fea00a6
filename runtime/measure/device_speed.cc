#include "runtime/measure/device_speed.h"

#include <algorithm>
#include <cmath>
#include <condition_variable>
#include <cstring>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "core/seconds.h"
#include "kernels/cpu/cpu_device.h"
#include "kernels/cpu/thread_pool.h"
#include "runtime/measure/link_statistics.h"

namespace adaptive_train {
namespace {

struct MeanRate {
  double mean = 0;
  double spread = 0;  // judged by the quarters of the calls; 0 where they are too few
};

/// Repeats `call`, which does `work`, for `seconds`, but `least` times.
template <class Call>
MeanRate RateOf(double seconds, std::size_t least, double work, const Call& call) {
  constexpr std::size_t kParts = 4;
  std::vector<Arrival> done = {{SteadySecondsNow(), 0}};
  while (done.size() <= least || done.back().seconds - done.front().seconds < seconds) {
    call();
    done.push_back({SteadySecondsNow(), done.back().bytes + work});
  }
  MeanRate rate;
  rate.mean = done.back().bytes / (done.back().seconds - done.front().seconds);
  if (done.size() <= kParts) return rate;
  double squares = 0;
  const std::size_t last = done.size() - 1;
  for (std::size_t part = 0; part < kParts; ++part) {
    const Arrival& begin = done[last * part / kParts];
    const Arrival& end = done[last * (part + 1) / kParts];
    const double off =
        (end.bytes - begin.bytes) / std::max(1e-9, end.seconds - begin.seconds) / rate.mean - 1;
    squares += off * off;
  }
  // Of the mean of the parts: sqrt(kParts) steadier than each.
  rate.spread = std::sqrt(squares / (kParts - 1) / kParts);
  return rate;
}

MeanRate ProductRate(int threads, double seconds) {
  constexpr std::int64_t kSide = 512;
  kernels::cpu::CpuDevice<float> device(threads);
  kernels::Buffer<float> a(device, kSide * kSide), b(device, kSide * kSide),
      c(device, kSide * kSide);
  a.Clear();
  b.Clear();
  kernels::MatmulArguments<float> product;
  product.rows = product.columns = product.inner = kSide;
  product.a = a.data();
  product.b = b.data();
  product.c = c.data();
  device.Matmul(product);  // builds the kernel
  return RateOf(seconds, 4, 2.0 * kSide * kSide * kSide, [&] { device.Matmul(product); });
}

double CopyRate(int threads, double seconds) {
  // Beyond the caches of most processors, and little of a node's memory.
  constexpr std::size_t kBytes = 32u << 20;
  const auto count = static_cast<std::size_t>(threads);
  const std::size_t share = kBytes / count;
  const auto from = std::make_unique<char[]>(kBytes);
  const auto to = std::make_unique<char[]>(kBytes);
  kernels::cpu::ThreadPool pool(threads);
  const auto copy = [&] {
    pool.For(static_cast<std::int64_t>(count), [&](std::int64_t part, int) {
      const std::size_t begin = share * static_cast<std::size_t>(part);
      std::memcpy(to.get() + begin, from.get() + begin, share);
    });
  };
  return RateOf(seconds, 1, static_cast<double>(share * count), copy).mean;
}

/// Two threads that wake each other in turn.
double HandoverSeconds() {
  constexpr int kTurns = 200;
  std::mutex mutex;
  std::condition_variable changed;
  int turn = 0;  // even: the first one's
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
  const MeanRate product = ProductRate(threads, 0.7 * seconds);
  return {product.mean, product.spread, CopyRate(threads, 0.3 * seconds), HandoverSeconds()};
}

}  // namespace adaptive_train
