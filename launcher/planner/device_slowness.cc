#include "launcher/planner/device_slowness.h"

#include <algorithm>
#include <cmath>
#include <vector>

namespace adaptive_train {
namespace {

double Median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  const std::size_t n = values.size();
  return (values[(n - 1) / 2] + values[n / 2]) / 2;
}

}  // namespace

Slowness SlownessOf(const Profile& profile, const std::string& kind, const std::string& node) {
  std::vector<double> products;
  const DeviceMeasurement* own = nullptr;
  double occasions = 0, variance = 0;
  for (const DeviceMeasurement& device : profile.devices) {
    if (device.device_kind != kind || device.product_flops <= 0) continue;
    if (device.node == node && own == nullptr) own = &device;
    products.push_back(device.product_flops);
    const auto count = static_cast<double>(device.evidence.count);
    occasions += count;
    variance += count * device.evidence.spread * device.evidence.spread;
  }
  Slowness slowness;
  if (own == nullptr || own->evidence.count < 1) return slowness;
  slowness.measured = Median(std::move(products)) / own->product_flops;
  const double error = std::sqrt(variance / occasions *
                                 (1 / static_cast<double>(own->evidence.count) + 1 / occasions));
  const double apart = std::abs(std::log(slowness.measured));
  if (own->evidence.count >= kLeastOccasions &&
      apart > std::max(std::log1p(kSameSpeed), kSureOfSpeed * error))
    slowness.shown = slowness.measured;
  return slowness;
}

}  // namespace adaptive_train
