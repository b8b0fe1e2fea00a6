// How fast groups do the work of pipelines if layers may be split freely between them.
#pragma once

#include <utility>
#include <vector>

namespace adaptive_train {

/// Rates of classes from prices of layers: no class earns faster than on its best layer.
/// `times[class][layer]` is in seconds of a micro-batch; rates are micro-batches of the whole model
/// per second.
std::vector<double> RatesOf(const std::vector<std::vector<double>>& times,
                            const std::vector<double>& prices);

/// Prices of layers that minimize the rate of all groups together, approximated by a few steps of
/// ascent. There are `count[class]` groups.
std::vector<double> FairPrices(const std::vector<std::vector<double>>& times,
                               const std::vector<int>& count);

/// Rates with the number of groups that have each, highest first.
using Supply = std::vector<std::pair<double, int>>;

/// The `n` fastest groups.
Supply FastestOf(const std::vector<double>& rates, const std::vector<int>& count, int n);

/// The least T for which the sum over groups of max(0, rate x T - 1) is `work`.
double SecondsToFill(const Supply& supply, double work);

}  // namespace adaptive_train
