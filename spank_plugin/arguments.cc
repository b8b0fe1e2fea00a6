#include "spank_plugin/arguments.h"

#include <charconv>
#include <cmath>
#include <string_view>

#include "core/limits.h"
#include "spank_plugin/seconds.h"

namespace adaptive_train::plugin {
namespace {

constexpr double kShortestDeadline = 0.1;
constexpr double kLongestDeadline = 60;

bool SetDeadline(std::string_view text, Arguments& arguments) {
  double seconds = 0;
  const char* end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, seconds, std::chars_format::fixed);
  if (error != std::errc() || stop != end ||
      !(seconds >= kShortestDeadline && seconds <= kLongestDeadline))
    return false;
  arguments.deadline = std::chrono::milliseconds(std::lround(seconds * 1000));
  return true;
}

}  // namespace

ArgumentsResult ParseArguments(std::span<const char* const> words) {
  ArgumentsResult result{{ADAPTIVE_TRAIN_PROBE_PATH, kProbeDeadline}, {}};
  for (const std::string_view word : words) {
    if (word.starts_with("probe=/")) {
      result.arguments.probe = word.substr(6);
    } else if (word.starts_with("probe=")) {
      result.problems.push_back("plugstack argument " + std::string(word) +
                                ": the probe's path must be absolute; using " +
                                result.arguments.probe);
    } else if (!word.starts_with("deadline=")) {
      result.problems.push_back("plugstack argument " + std::string(word) +
                                " is unknown; allowed: probe=PATH, deadline=SECONDS");
    } else if (!SetDeadline(word.substr(9), result.arguments)) {
      result.problems.push_back("plugstack argument " + std::string(word) +
                                ": the deadline must be 0.1 to 60 seconds; using " +
                                InSeconds(result.arguments.deadline));
    }
  }
  return result;
}

}  // namespace adaptive_train::plugin
