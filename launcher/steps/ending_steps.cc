#include "launcher/steps/ending_steps.h"

#include <poll.h>

#include <utility>

namespace adaptive_train {

void EndingSteps::Take(std::unique_ptr<JobStep> step) {
  if (step && !step->Over()) steps_.push_back(std::move(step));
}

void EndingSteps::Poll() {
  for (const auto& step : steps_) step->Poll();
  std::erase_if(steps_, [](const auto& step) { return step->Over(); });
}

void EndingSteps::Await(std::chrono::milliseconds patience) {
  const auto until = std::chrono::steady_clock::now() + patience;
  for (Poll(); !steps_.empty() && std::chrono::steady_clock::now() < until; Poll())
    ::poll(nullptr, 0, 10);
}

}  // namespace adaptive_train
