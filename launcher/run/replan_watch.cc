#include "launcher/run/replan_watch.h"

#include <algorithm>
#include <cmath>
#include <utility>

namespace adaptive_train {
namespace {

template <class Values>
double Median(const Values& values) {
  std::vector<double> sorted(values.begin(), values.end());
  std::sort(sorted.begin(), sorted.end());
  const std::size_t n = sorted.size();
  return n == 0 ? 0 : (sorted[(n - 1) / 2] + sorted[n / 2]) / 2;
}

}  // namespace

StepTimes StepTimesOf(std::span<const double> steps_s) {
  StepTimes times;
  times.median_s = Median(steps_s);
  if (steps_s.size() < 3 || times.median_s <= 0) return times;
  std::vector<double> distances;
  for (const double step_s : steps_s) distances.push_back(std::abs(step_s - times.median_s));
  // For a normal distribution: deviation / median distance, and the median's error / the mean's.
  constexpr double kDeviation = 1.4826, kOfMedian = 1.2533;
  const double deviation = kDeviation * Median(distances) / times.median_s;
  times.error = kOfMedian * deviation / std::sqrt(static_cast<double>(steps_s.size()));
  return times;
}

bool DriftWatch::Add(double step_s) {
  last_.push_back(step_s);
  if (last_.size() > kWindow) last_.pop_front();
  if (last_.size() < kWindow) return false;
  const double median = Median(last_);
  if (!reference_) {
    reference_ = median;
    return false;
  }
  slow_ = median > kSlower * *reference_ ? slow_ + 1 : 0;
  if (slow_ < kPatience) return false;
  *this = DriftWatch();
  return true;
}

ReplanWatch::ReplanWatch(const Settings& settings)
    : settings_(settings),
      times_(settings.ranks),
      measured_(settings.ranks),
      decides_(settings.after_warmup),
      compares_(settings.moved),
      to_skip_(settings.moved && !settings.warms_up ? kFirstSteps : 0) {}

bool ReplanWatch::Measured(int rank, const LayerTimes& times) {
  const auto index = static_cast<std::size_t>(rank);
  times_[index] = times;
  measured_[index] = true;
  if (!std::all_of(measured_.begin(), measured_.end(), [](bool done) { return done; }))
    return false;
  measured_.assign(measured_.size(), false);
  judged_.clear();
  complete_ = true;
  return true;
}

ReplanAction ReplanWatch::AfterStep(double step_s) {
  if (complete_) {
    judged_.push_back(step_s);
    if (judged_.size() < kJudgedSteps) return ReplanAction::kGoOn;
    complete_ = false;
    if (std::exchange(compares_, false)) return ReplanAction::kCompare;
    return std::exchange(decides_, false) ? ReplanAction::kDecide : ReplanAction::kGoOn;
  }
  if (to_skip_ > 0 && --to_skip_ == 0) complete_ = true;
  if (!settings_.on_drift || !drift_.Add(step_s)) return ReplanAction::kGoOn;
  decides_ = true;
  return ReplanAction::kMeasure;
}

}  // namespace adaptive_train
