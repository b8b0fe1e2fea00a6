// Times as plain seconds, for figures that are stored or subtracted.
#pragma once

#include <chrono>

namespace adaptive_train {

/// UTC, since 1970.
inline double EpochSecondsNow() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

/// Since an unspecified time; never set back.
inline double SteadySecondsNow() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

}  // namespace adaptive_train
