#include "runtime/train/step_measure.h"

#include <sys/resource.h>

#include <iterator>
#include <thread>

namespace adaptive_train {
namespace {

/// By Activity.
constexpr const char* kWork[] = {"other work", "computing", "exchanging", "waiting for a stage"};
static_assert(std::size(kWork) == kActivities);

std::int64_t PeakMemoryBytes() {
  rusage usage{};
  ::getrusage(RUSAGE_SELF, &usage);
  return static_cast<std::int64_t>(usage.ru_maxrss) * 1024;
}

}  // namespace

void StepMeasure::Begin(double pace) {
  pace_ = pace;
  begin_ = since_ = Clock::now();
  now_ = Activity::kOther;
  seconds_ = {};
}

Activity StepMeasure::Switch(Activity activity) {
  auto time = Clock::now();
  if (pace_ < 1 && now_ == Activity::kCompute) {
    std::this_thread::sleep_for((time - since_) * (1 / pace_ - 1));
    time = Clock::now();
  }
  seconds_[static_cast<std::size_t>(now_)] += std::chrono::duration<double>(time - since_).count();
  since_ = time;
  main_thread().WorksAt(kWork[static_cast<std::size_t>(activity)]);
  return std::exchange(now_, activity);
}

double StepMeasure::SecondsOf(Activity activity) {
  Switch(now_);
  return seconds_[static_cast<std::size_t>(activity)];
}

double StepMeasure::Seconds() const {
  return std::chrono::duration<double>(Clock::now() - begin_).count();
}

void StepMeasure::FillTimes(RankMetrics& metrics) {
  Switch(now_);
  const auto booked = [this](Activity activity) {
    return seconds_[static_cast<std::size_t>(activity)];
  };
  metrics.compute_s = booked(Activity::kCompute);
  metrics.exposed_comm_s = booked(Activity::kExposedComm);
  metrics.bubble_s = booked(Activity::kBubble);
  metrics.other_s = booked(Activity::kOther);
  metrics.step_s = std::chrono::duration<double>(since_ - begin_).count();
}

void StepMeasure::BeginCounting() {
  RankMetrics before_the_first;
  Fill(before_the_first, 0);
}

void StepMeasure::Forget(Purpose purpose) {
  sent_before_[static_cast<std::size_t>(purpose)] = communicator_.BytesSent(purpose);
}

void StepMeasure::Fill(RankMetrics& metrics, double select_cpu_s) {
  const auto since_last = [this](Purpose purpose) {
    std::int64_t& before = sent_before_[static_cast<std::size_t>(purpose)];
    const std::int64_t now = communicator_.BytesSent(purpose);
    return now - std::exchange(before, now);
  };
  metrics.grad_bytes = since_last(Purpose::kGradient);
  metrics.param_bytes = since_last(Purpose::kParameter);
  metrics.activation_bytes = since_last(Purpose::kActivation);
  const double comm_cpu_s = communicator_.CpuSeconds();
  metrics.comm_cpu_s = comm_cpu_s - std::exchange(comm_cpu_before_, comm_cpu_s) + select_cpu_s;
  metrics.peak_memory_bytes = PeakMemoryBytes();
}

}  // namespace adaptive_train
