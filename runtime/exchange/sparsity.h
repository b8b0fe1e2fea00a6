// How much of each layer's gradient is sent: the framework paper's section 3.3, and one threshold
// for all layers beside it.
#pragma once

#include <span>
#include <vector>

namespace adaptive_train {

/// The range of s_l, the share of a layer's elements that is not sent.
struct SparsityRange {
  double min = 0.7;
  double max = 0.95;
};

/// Equation (3): s_l = s_max - (s_max - s_min) (v_l - v_min) / (v_max - v_min), where v_l, 0 or
/// more and finite, says how much layer l's gradient changes from step to step. Gives the densities
/// 1 - s_l, one per layer. Where all change alike nothing tells that any bears less: all get
/// 1 - s_min, the most.
std::vector<double> DensitiesOf(std::span<const double> variances, const SparsityRange& range);

/// One threshold for all layers, above which `density`, in (0, 1], of all their elements lie:
/// counts[layer][c] elements of a layer are of size class c, and classes ascend with size. Gives
/// each layer's share above the threshold, one per layer. Of the class that the threshold falls in
/// the same share of every layer is above it. A layer that is all below it would wait for the next
/// flush: each gets a tenth of `density` at least.
std::vector<double> DensitiesAboveThreshold(std::span<const std::span<const double>> counts,
                                            double density);

}  // namespace adaptive_train
