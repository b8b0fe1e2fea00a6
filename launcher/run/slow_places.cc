#include "launcher/run/slow_places.h"

#include <algorithm>
#include <numeric>

#include "launcher/run/replan_watch.h"

namespace adaptive_train {
namespace {

/// Seconds; what ranks report must not divide by zero.
constexpr double kShortest = 1e-9;

/// Each value over the median of all others; of an even number over the larger middle one.
std::vector<double> RelativeToOthers(std::span<const double> values) {
  std::vector<std::size_t> order(values.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::sort(order.begin(), order.end(),
            [&](std::size_t a, std::size_t b) { return values[a] < values[b]; });
  const std::size_t middle = (values.size() - 1) / 2;  // without the value itself
  std::vector<double> relative(values.size());
  for (std::size_t i = 0; i < order.size(); ++i)
    relative[order[i]] = values[order[i]] / values[order[middle < i ? middle : middle + 1]];
  return relative;
}

}  // namespace

SlowPlaces::SlowPlaces(std::size_t places, int replicas)
    : places_(places),
      replicas_(static_cast<std::size_t>(replicas)),
      alone_(places),
      compared_(places) {
  BeginObservation();
}

void SlowPlaces::BeginWindow() {
  for (auto* window : {&alone_, &compared_})
    for (std::vector<double>& times : *window) times.clear();
  steps_ = 0;
  BeginObservation();
}

void SlowPlaces::BeginObservation() {
  seconds_ = 0;
  computed_s_.assign(places_, 0.0);
  expected_s_.assign(places_, 0.0);
}

std::optional<SlowPlaces::Window> SlowPlaces::Add(std::span<const double> computed_s,
                                                  std::span<const double> expected_s, double step_s,
                                                  const std::vector<bool>& may_be_fast) {
  ++steps_;
  seconds_ += step_s;
  for (std::size_t place = 0; place < places_; ++place) {
    computed_s_[place] += computed_s[place];
    expected_s_[place] += expected_s[place];
  }
  if (seconds_ < kLeastSeconds) return std::nullopt;
  std::vector<double> alone(places_);
  for (std::size_t place = 0; place < places_; ++place)
    alone[place] = std::max(kShortest, computed_s_[place]) / expected_s_[place];
  const std::vector<double> compared = ComparedInStages(alone);
  for (std::size_t place = 0; place < places_; ++place) {
    alone_[place].push_back(alone[place]);
    compared_[place].push_back(compared[place]);
  }
  BeginObservation();
  if (alone_.front().size() < kWindow) return std::nullopt;
  const Window window{steps_, Judge(may_be_fast)};
  BeginWindow();
  return window;
}

std::vector<double> SlowPlaces::ComparedInStages(const std::vector<double>& alone) const {
  std::vector<double> compared;
  for (std::size_t first = 0; first < places_; first += replicas_) {
    const auto stage = RelativeToOthers(std::span(alone).subspan(first, replicas_));
    compared.insert(compared.end(), stage.begin(), stage.end());
  }
  return compared;
}

/// Of two replicas one is as much slower than the other as that one is faster: where one was slow
/// before, it is fast again.
std::optional<OffPlace> SlowPlaces::Judge(const std::vector<bool>& may_be_fast) {
  std::optional<OffPlace> slowest, fastest;
  for (std::size_t place = 0; place < places_; ++place) {
    std::vector<double>& times = compared_[place];
    std::sort(times.begin(), times.end());
    const StepTimes median = StepTimesOf(times);
    const double alone = StepTimesOf(alone_[place]).median_s;
    const OffPlace off{place, median.median_s, median.error};
    if (times[kDoubts] > kOff && alone > kOffPlan && (!slowest || off.times > slowest->times))
      slowest = off;
    if (may_be_fast[place] && times[kWindow - 1 - kDoubts] < 1 / kOff && alone < 1 / kOffPlan &&
        (!fastest || off.times < fastest->times))
      fastest = off;
  }
  return fastest ? fastest : slowest;
}

}  // namespace adaptive_train
