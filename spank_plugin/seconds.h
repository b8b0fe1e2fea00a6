// A time in the form that an administrator writes.
#pragma once

#include <chrono>
#include <cstdio>
#include <string>

namespace adaptive_train::plugin {

/// "2 s", "0.25 s".
inline std::string InSeconds(std::chrono::milliseconds time) {
  char text[32];
  std::snprintf(text, sizeof text, "%g s", std::chrono::duration<double>(time).count());
  return text;
}

}  // namespace adaptive_train::plugin
