#include "launcher/measure/layer_records.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <tuple>

#include "core/device_kind.h"

namespace adaptive_train {
namespace {

/// Joins two means of the same quantity.
LayerMeasurement Joined(const LayerMeasurement& a, const LayerMeasurement& b) {
  const auto n = static_cast<double>(a.evidence.count), m = static_cast<double>(b.evidence.count);
  const auto mean = [&](double x, double y) { return (n * x + m * y) / (n + m); };
  LayerMeasurement joined = a;
  joined.forward_s = mean(a.forward_s, b.forward_s);
  joined.backward_s = mean(a.backward_s, b.backward_s);
  joined.weight_gradients_s = mean(a.weight_gradients_s, b.weight_gradients_s);
  joined.update_s = mean(a.update_s, b.update_s);
  joined.evidence.count = a.evidence.count + b.evidence.count;
  // The variance within each and between both.
  const double whole = joined.forward_s + joined.backward_s;
  const auto squares = [&](const LayerMeasurement& e) {
    const double own = e.forward_s + e.backward_s;
    return e.evidence.spread * own * e.evidence.spread * own + (own - whole) * (own - whole);
  };
  joined.evidence.spread = whole > 0 ? std::sqrt(mean(squares(a), squares(b))) / whole : 0;
  return joined;
}

/// The variance of "embedding", "block" or "head".
double VarianceOf(const std::string& layer, const std::vector<double>& variances) {
  if (variances.size() < 3) return 0;
  if (layer == "embedding") return variances.front();
  if (layer == "head") return variances.back();
  double sum = 0;
  for (std::size_t i = 1; i + 1 < variances.size(); ++i) sum += variances[i];
  return sum / static_cast<double>(variances.size() - 2);
}

}  // namespace

std::vector<double> MeanVariances(std::span<const LayerTimes> times) {
  std::vector<double> sums, having;
  for (const LayerTimes& of_rank : times) {
    if (of_rank.variances.empty()) continue;
    if (sums.empty()) {
      sums.resize(of_rank.variances.size());
      having.resize(sums.size());
    }
    // The number of layers comes from another process.
    if (sums.size() != of_rank.variances.size()) continue;
    for (std::size_t i = 0; i < sums.size(); ++i) {
      if (!(of_rank.variances[i] >= 0)) continue;
      sums[i] += of_rank.variances[i];
      ++having[i];
    }
  }
  for (std::size_t i = 0; i < sums.size(); ++i) sums[i] /= std::max(1.0, having[i]);
  return sums;
}

std::vector<LayerMeasurement> LayerRecords(const Plan& plan, const std::string& model,
                                           std::span<const LayerTimes> times, double now) {
  const std::vector<double> variances = MeanVariances(times);
  std::map<std::tuple<std::string, std::string, std::int64_t>, LayerMeasurement> records;
  for (std::size_t rank = 0; rank < std::min(times.size(), plan.ranks.size()); ++rank) {
    const Device& device = plan.ranks[rank].device;
    const std::string kind = DeviceKindName(device);
    for (LayerMeasurement entry : times[rank].entries) {
      entry.device_kind = kind;
      entry.model = model;
      entry.evidence.measured_at = now;
      entry.gradient_variance = VarianceOf(entry.layer, variances);
      const auto [place, added] =
          records.try_emplace({kind, entry.layer, entry.micro_batch}, entry);
      if (!added) place->second = Joined(place->second, entry);
    }
  }
  std::vector<LayerMeasurement> all;
  for (auto& [key, record] : records) all.push_back(std::move(record));
  return all;
}

double LayerError(std::span<const LayerMeasurement> records) {
  double worst = 0;
  for (const LayerMeasurement& record : records) {
    if (record.layer != "block" || record.evidence.count < 1) continue;
    worst = std::max(
        worst, record.evidence.spread / std::sqrt(static_cast<double>(record.evidence.count)));
  }
  return worst;
}

}  // namespace adaptive_train
