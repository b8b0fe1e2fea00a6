// How long something takes where nothing disturbs it.
#pragma once

#include <algorithm>
#include <chrono>

namespace adaptive_train {

/// The shortest of some repetitions.
template <class Work>
double BestSeconds(int repetitions, const Work& work) {
  using Clock = std::chrono::steady_clock;
  auto best = Clock::duration::max();
  for (int i = 0; i < repetitions; ++i) {
    const auto start = Clock::now();
    work();
    best = std::min(best, Clock::now() - start);
  }
  return std::chrono::duration<double>(best).count();
}

}  // namespace adaptive_train
