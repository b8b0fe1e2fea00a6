#include "launcher/simulator/schedule_svg.h"

#include <fmt/format.h>

#include <cassert>
#include <optional>
#include <vector>

#include "launcher/simulator/timeline_svg.h"

namespace adaptive_train {
namespace {

std::optional<Activity> ActivityOf(ActionKind kind) {
  switch (kind) {
    case ActionKind::kForward:
      return Activity::kForward;
    case ActionKind::kBackward:
      return Activity::kBackward;
    case ActionKind::kBackwardInput:
      return Activity::kBackwardInput;
    case ActionKind::kBackwardWeight:
      return Activity::kBackwardWeight;
    case ActionKind::kReduce:
    case ActionKind::kGather:
      return Activity::kExchange;
    case ActionKind::kStep:
      return Activity::kUpdate;
    default:
      return std::nullopt;
  }
}

/// Its ranks take the rows first, first + step, ...
void AddRows(const SchedulePlay& play, std::size_t first, std::size_t step,
             std::vector<Span>& spans) {
  for (std::size_t rank = 0; rank < play.ranks.size(); ++rank) {
    for (const PlayedAction& played : play.ranks[rank]) {
      const auto activity = ActivityOf(played.action.kind);
      if (!activity) continue;
      spans.push_back(
          {.rank = static_cast<int>(first + rank * step),
           .activity = *activity,
           .micro_batch = IsCompute(played.action.kind) ? played.action.micro_batch : -1,
           .begin = played.begin,
           .end = played.end,
           .chunk = IsCompute(played.action.kind)
                        ? played.action.stage / static_cast<int>(play.ranks.size())
                        : 0});
    }
  }
}

std::string Summary(const char* what, const SchedulePlay& play) {
  return fmt::format("{} {:.4g} s, bubble {:.1f} %", what, play.makespan_s, 100 * play.Bubble());
}

}  // namespace

std::string ScheduleSvg(const SchedulePlay& planned, const SchedulePlay* measured,
                        const std::string& name) {
  assert(measured == nullptr || measured->ranks.size() == planned.ranks.size());
  std::vector<std::string> labels;
  std::vector<Span> spans;
  std::string title = name + ": " + Summary("planned", planned);
  for (std::size_t rank = 0; rank < planned.ranks.size(); ++rank) {
    labels.push_back(fmt::format("{}{}", rank, measured == nullptr ? "" : " planned"));
    if (measured != nullptr) labels.push_back("measured");
  }
  AddRows(planned, 0, measured == nullptr ? 1 : 2, spans);
  if (measured != nullptr) {
    AddRows(*measured, 1, 2, spans);
    title += "; " + Summary("measured", *measured);
  }
  return TimelineSvg(spans, labels, title);
}

}  // namespace adaptive_train
