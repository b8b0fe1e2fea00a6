// How much of each layer's gradient is sent: by the framework paper's section 3.3, or by one
// threshold for all layers.
#pragma once

#include <span>
#include <vector>

namespace adaptive_train {

/// The range of s_l, the share of a layer's elements that is not sent.
struct SparsityRange {
  double min = 0.7;
  double max = 0.95;
};

/// Equation (3): s_l = s_max - (s_max - s_min) (v_l - v_min) / (v_max - v_min). v_l, finite and at
/// least 0, says how much layer l's gradient changes from step to step. Returns the densities 1 -
/// s_l, one per layer. If all layers change alike, nothing favours any of them: all get 1 - s_min,
/// the most.
std::vector<double> DensitiesOf(std::span<const double> variances, const SparsityRange& range);

/// One threshold for all layers, such that `density`, in (0, 1], of all their elements are above
/// it. counts[layer][c] is the number of the layer's elements in size class c; classes ascend with
/// size. Returns each layer's share above the threshold. In the threshold's own class, the same
/// share of every layer counts as above. Each layer gets at least a tenth of `density`; otherwise a
/// layer below it would wait for the next flush.
std::vector<double> DensitiesAboveThreshold(std::span<const std::span<const double>> counts,
                                            double density);

}  // namespace adaptive_train
