#include "launcher/planner/rates.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

namespace adaptive_train {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

double TogetherOf(const std::vector<double>& rates, const std::vector<int>& count) {
  double together = 0;
  for (std::size_t c = 0; c < rates.size(); ++c)
    if (count[c] > 0) together += count[c] * rates[c];
  return together;
}

}  // namespace

std::vector<double> RatesOf(const std::vector<std::vector<double>>& times,
                            const std::vector<double>& prices) {
  const double all = std::accumulate(prices.begin(), prices.end(), 0.0);
  std::vector<double> rates;
  for (const auto& own : times) {
    double best = 0;
    for (std::size_t l = 0; l < prices.size(); ++l)
      best = std::max(best, own[l] > 0 ? prices[l] / own[l] : prices[l] > 0 ? kInfinity : 0);
    rates.push_back(best / all);
  }
  return rates;
}

std::vector<double> FairPrices(const std::vector<std::vector<double>>& times,
                               const std::vector<int>& count) {
  const std::size_t layers = times.front().size();
  std::vector<double> prices(layers);
  for (std::size_t l = 0; l < layers; ++l) {
    double speed = 0;
    for (std::size_t c = 0; c < times.size(); ++c) speed += count[c] / times[c][l];
    prices[l] = std::isfinite(speed) ? 1 / speed : 0;
  }
  std::vector<double> best = prices;
  double slowest = TogetherOf(RatesOf(times, prices), count);
  const int steps = static_cast<int>(std::clamp<std::size_t>(20000 / layers, 20, 150));
  for (int step = 0; step < steps; ++step) {
    const double by = 0.1 / (1 + 0.1 * step);
    for (std::size_t c = 0; c < times.size(); ++c) {
      // A layer that a class does best is made cheaper.
      std::size_t favourite = 0;
      for (std::size_t l = 1; l < layers; ++l)
        if (prices[l] * times[c][favourite] > prices[favourite] * times[c][l]) favourite = l;
      if (count[c] > 0) prices[favourite] *= 1 - by;
    }
    const double together = TogetherOf(RatesOf(times, prices), count);
    if (together < slowest) slowest = together, best = prices;
  }
  return best;
}

Supply FastestOf(const std::vector<double>& rates, const std::vector<int>& count, int n) {
  Supply order;
  for (std::size_t c = 0; c < rates.size(); ++c)
    if (count[c] > 0) order.emplace_back(rates[c], count[c]);
  std::sort(order.rbegin(), order.rend());
  Supply fastest;
  for (const auto& [rate, there] : order) {
    if (n <= 0) break;
    fastest.emplace_back(rate, std::min(n, there));
    n -= there;
  }
  return fastest;
}

double SecondsToFill(const Supply& supply, double work) {
  if (work <= 0) return 0;
  double seconds = kInfinity, speed = 0, groups = 0;
  for (const auto& [rate, count] : supply) {
    if (seconds * rate <= 1) break;  // too slow to do any of it
    speed += count * rate;
    groups += count;
    seconds = (work + groups) / speed;
  }
  return seconds;
}

}  // namespace adaptive_train
