#include "runtime/exchange/sparsity.h"

#include <algorithm>

namespace adaptive_train {

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

}  // namespace adaptive_train
