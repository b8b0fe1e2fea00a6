#include "runtime/exchange/sparsity.h"

#include <algorithm>
#include <numeric>

namespace adaptive_train {
namespace {

/// A threshold: all elements of classes above `in` are sent, and `share` of class `in`.
struct Threshold {
  std::size_t in = 0;
  double share = 1;
};

Threshold ThresholdOf(std::span<const std::span<const double>> counts, double density) {
  const std::size_t classes = counts.front().size();
  std::vector<double> all(classes);
  for (const std::span<const double> layer : counts)
    for (std::size_t c = 0; c < classes; ++c) all[c] += layer[c];
  double left = density * std::accumulate(all.begin(), all.end(), 0.0);
  for (std::size_t c = classes; c-- > 0; left -= all[c])
    if (all[c] > 0 && left <= all[c]) return {c, left / all[c]};
  return {};
}

}  // namespace

std::vector<double> DensitiesOf(std::span<const double> variances, const SparsityRange& range) {
  std::vector<double> densities;
  if (variances.empty()) return densities;
  const auto [least, most] = std::minmax_element(variances.begin(), variances.end());
  for (const double variance : variances) {
    const double place = *most > *least ? (variance - *least) / (*most - *least) : 1;
    densities.push_back(1 - (range.max - (range.max - range.min) * place));
  }
  return densities;
}

std::vector<double> DensitiesAboveThreshold(std::span<const std::span<const double>> counts,
                                            double density) {
  constexpr double kLeastPart = 0.1, kRounding = 1e-9;
  std::vector<double> densities;
  if (counts.empty()) return densities;
  if (density >= 1) return std::vector<double>(counts.size(), 1.0);
  const Threshold threshold = ThresholdOf(counts, density);
  for (const std::span<const double> layer : counts) {
    const auto in = layer.begin() + static_cast<std::ptrdiff_t>(threshold.in);
    const double sent = std::accumulate(in + 1, layer.end(), threshold.share * *in);
    const double elements = std::accumulate(layer.begin(), layer.end(), 0.0);
    const double above = elements > 0 ? sent / elements : 0;
    // A layer that is all above the threshold must be whole, in spite of rounding.
    densities.push_back(above > 1 - kRounding ? 1 : std::max(above, kLeastPart * density));
  }
  return densities;
}

}  // namespace adaptive_train
