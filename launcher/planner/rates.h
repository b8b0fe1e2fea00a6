// How fast groups do the work of pipelines if layers could be split between them at will.
#pragma once

#include <utility>
#include <vector>

namespace adaptive_train {

/// Rates of classes by prices of layers: nobody does priced work faster than its best layer.
/// `times[class][layer]` in seconds of a micro-batch; rates in micro-batches of the whole model per
/// second.
std::vector<double> RatesOf(const std::vector<std::vector<double>>& times,
                            const std::vector<double>& prices);

/// Prices of layers under which all groups together are as slow as a few steps of ascent make
/// them. `count[class]` groups.
std::vector<double> FairPrices(const std::vector<std::vector<double>>& times,
                               const std::vector<int>& count);

/// Rates and how many groups have them, highest first.
using Supply = std::vector<std::pair<double, int>>;

/// The `n` fastest groups.
Supply FastestOf(const std::vector<double>& rates, const std::vector<int>& count, int n);

/// The least T for which the sum over groups of max(0, rate x T - 1) is `work`.
double SecondsToFill(const Supply& supply, double work);

}  // namespace adaptive_train
