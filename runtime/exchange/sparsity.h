// How much of each layer's gradient is sent: the framework paper's section 3.3.
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

}  // namespace adaptive_train
