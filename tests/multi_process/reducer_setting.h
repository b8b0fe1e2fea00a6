// Common settings of tests of summed gradients: a small model, the number of ranks and nodes, and
// the compression.
#pragma once

#include <gtest/gtest.h>

#include <cstddef>
#include <string>
#include <vector>

#include "runtime/exchange/gradient_reducer.h"

namespace adaptive_train {

using kernels::ValueFormat;

inline const ModelDims kDims{.layers = 2, .heads = 2, .hidden = 32, .sequence = 16, .vocab = 128};

/// The number of ranks, and how many share a node: rank r is on node r modulo the nodes.
struct Setting {
  int ranks, per_node = 1;

  std::vector<std::vector<int>> Nodes() const {
    if (per_node == 1) return {};
    std::vector<std::vector<int>> nodes(static_cast<std::size_t>(ranks / per_node));
    for (int rank = 0; rank < ranks; ++rank)
      nodes[static_cast<std::size_t>(rank) % nodes.size()].push_back(rank);
    return nodes;
  }
};

inline std::string SettingName(const testing::TestParamInfo<Setting>& info) {
  const Setting& setting = info.param;
  return std::to_string(setting.ranks) +
         (setting.per_node == 1 ? "" : "By" + std::to_string(setting.per_node));
}

inline ExchangePolicy Sparse(double density, ValueFormat format = ValueFormat::kBFloat16) {
  ExchangePolicy policy;
  policy.density.assign(4, density);
  policy.format = format;
  return policy;
}

}  // namespace adaptive_train
