#include "core/launch_settings.h"

#include <algorithm>
#include <charconv>
#include <cmath>

namespace adaptive_train {
namespace {

/// The time that each rank adds to a deadline. Generous: on 4 nodes a launch takes 0.4 s, and a
/// fence 1 ms.
constexpr std::chrono::milliseconds kHelloPerRank{20};
constexpr std::chrono::milliseconds kSpreadPerRank{10};
constexpr std::chrono::milliseconds kPmixInitPerRank{10};
constexpr std::chrono::milliseconds kFencePerRank{5};
constexpr std::chrono::milliseconds kShortStepPerNode{50};
constexpr std::chrono::milliseconds kLauncherPatience = 3s;
/// How many times as long as in the launch before hellos may take. A launch that is given up too soon
/// is tried again with all the time there is, where the nodes that it misses answer.
constexpr int kFirstAgain = 5, kSpreadAgain = 10;

bool ReadPort(std::string_view text, int& port) {
  const char* end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, port);
  return error == std::errc() && stop == end && port >= 1 && port <= 65535;
}

}  // namespace

LaunchDeadlines DeadlinesOf(const LaunchConfig& launch, std::size_t ranks) {
  const auto grown = [ranks](std::chrono::milliseconds least, std::chrono::milliseconds each) {
    return least + each * static_cast<std::int64_t>(ranks);
  };
  const auto set = [](const AutoInt& seconds, std::chrono::milliseconds otherwise) {
    return seconds ? std::chrono::milliseconds(1000 * *seconds) : otherwise;
  };
  LaunchDeadlines deadlines;
  deadlines.hello = set(launch.hello_seconds, grown(kHelloDeadline, kHelloPerRank));
  deadlines.spread = grown(kHelloSpread, kSpreadPerRank);
  deadlines.pmix_init = grown(kPmixInitDeadline, kPmixInitPerRank);
  if (launch.hello_seconds) {  // a configured deadline covers these two as well
    deadlines.spread = std::max(deadlines.spread, deadlines.hello);
    deadlines.pmix_init = deadlines.hello;
  }
  deadlines.fence = set(launch.fence_seconds, grown(kFenceDeadline, kFencePerRank));
  deadlines.short_step =
      set(launch.short_step_seconds, grown(kShortStepDeadline, kShortStepPerNode));
  deadlines.rank_silence = std::chrono::milliseconds(std::llround(1000 * launch.silence_seconds));
  // The launcher leaves a rank behind before the rank leaves its launcher.
  deadlines.launcher_silence =
      std::max(kLauncherSilenceLimit, 2 * deadlines.rank_silence + kLauncherPatience);
  return deadlines;
}

HelloTimes HelloDeadlinesAgain(const LaunchConfig& launch, const LaunchDeadlines& deadlines,
                               const HelloTimes& usual) {
  if (launch.hello_seconds) return {deadlines.hello, deadlines.spread};
  const auto within = [&deadlines](std::chrono::milliseconds time, std::chrono::milliseconds most) {
    return std::min(most, std::max(deadlines.rank_silence, time));
  };
  return {within(kFirstAgain * usual.first, deadlines.hello),
          within(kSpreadAgain * usual.spread, deadlines.spread)};
}

Result<PortRange> ParsePorts(const std::string& text) {
  if (text == "auto") return PortRange{};
  PortRange range;
  const auto dash = text.find('-');
  if (dash == std::string::npos || !ReadPort(std::string_view(text).substr(0, dash), range.first) ||
      !ReadPort(std::string_view(text).substr(dash + 1), range.last) || range.first > range.last)
    return Fail("launch.ports must be \"auto\" or \"FIRST-LAST\" with ports from 1 to 65535");
  return range;
}

}  // namespace adaptive_train
