#include "core/schedule/check.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <optional>
#include <utility>

#include "core/schedule/dry_run.h"
#include "core/schedule/row_check.h"

namespace adaptive_train {
namespace {

using enum ActionKind;

constexpr std::size_t kMostWaitsTold = 4;

std::optional<RowFault> CheckNumbers(const Schedule& schedule, const ScheduleNeeds& needs) {
  const std::size_t stages = static_cast<std::size_t>(std::max(0, schedule.stages));
  if (schedule.ranks.empty() || schedule.stages < 1 || schedule.micro_batches < 1)
    return RowFault{{0, 0},
                    fmt::format("{} ranks, {} stages, {} micro-batches: 1 or more of each "
                                "are needed",
                                schedule.ranks.size(), schedule.stages, schedule.micro_batches)};
  if (!needs.activation_bytes.empty() && needs.activation_bytes.size() != stages)
    return RowFault{{0, 0},
                    fmt::format("activation bytes of {} stages for a schedule of {}",
                                needs.activation_bytes.size(), stages)};
  if (!needs.rank_bytes.empty() && needs.rank_bytes.size() != schedule.ranks.size())
    return RowFault{{0, 0},
                    fmt::format("limits of {} ranks for a schedule of {}", needs.rank_bytes.size(),
                                schedule.ranks.size())};
  return std::nullopt;
}

/// All stages make their updates after the same micro-batches.
std::optional<RowFault> CheckSteps(const Schedule& schedule) {
  const std::vector<int> first = StepsOf(schedule, 0);
  for (int stage = 1; stage < schedule.stages; ++stage) {
    const std::vector<int> steps = StepsOf(schedule, stage);
    if (steps == first) continue;
    const int rank = schedule.RankOf(stage);
    const auto& row = schedule.ranks[static_cast<std::size_t>(rank)];
    const auto place = std::find_if(row.begin(), row.end(), [&](const Action& action) {
      return action.stage == stage && action.kind == kStep;
    });
    return RowFault{{rank, static_cast<int>(place - row.begin())},
                    fmt::format("stage {} steps after micro-batches {}, stage 0 after {}", stage,
                                fmt::join(steps, ", "), fmt::join(first, ", "))};
  }
  return std::nullopt;
}

/// The send that a receive waits for.
Action SendOf(const Action& receive) {
  if (receive.kind == kReceiveForward)
    return {receive.stage - 1, kSendForward, receive.micro_batch};
  return {receive.stage + 1, kSendBackward, receive.micro_batch};
}

/// Rows are right for themselves here, so that pairs have equally many of both.
std::optional<RowFault> CheckPairs(const Schedule& schedule) {
  std::map<std::pair<int, int>, std::vector<Action>> sends;
  for (int rank = 0; const auto& row : schedule.ranks) {
    for (const Action& action : row) {
      if (IsSend(action.kind))
        sends[{rank, schedule.RankOf(action.stage + (action.kind == kSendForward ? 1 : -1))}]
            .push_back(action);
    }
    ++rank;
  }
  std::map<std::pair<int, int>, std::size_t> received;
  for (int rank = 0; const auto& row : schedule.ranks) {
    for (int index = 0; const Action& action : row) {
      ++index;
      if (!IsReceive(action.kind)) continue;
      const Action expected = SendOf(action);
      const std::pair pair{schedule.RankOf(expected.stage), rank};
      const Action& sent = sends[pair][received[pair]++];
      if (sent != expected)
        return RowFault{{rank, index - 1},
                        fmt::format("{} waits for {} while rank {} sends {} first", ToText(action),
                                    ToText(expected), pair.first, ToText(sent))};
    }
    ++rank;
  }
  return std::nullopt;
}

std::optional<RowFault> CheckReached(const Schedule& schedule) {
  const auto times = DryRun(schedule);
  const bool has_sends = HasSends(schedule);
  std::optional<SchedulePlace> first;
  std::vector<std::string> waits;
  for (int rank = 0; rank < static_cast<int>(times.size()); ++rank) {
    const auto& row = times[static_cast<std::size_t>(rank)];
    const auto stuck = std::find(row.begin(), row.end(), -1);
    if (stuck == row.end()) continue;
    const SchedulePlace place{rank, static_cast<int>(stuck - row.begin())};
    if (!first) first = place;
    const Action& action =
        schedule.ranks[static_cast<std::size_t>(rank)][static_cast<std::size_t>(place.index)];
    if (const auto input = InputOf(schedule, action, has_sends))
      waits.push_back(fmt::format("rank {} in {} for {}", rank, ToText(action), ToText(*input)));
  }
  if (!first) return std::nullopt;
  const std::size_t told = std::min(waits.size(), kMostWaitsTold);
  return RowFault{
      *first,
      fmt::format("ranks wait for each other: {}{}",
                  fmt::join(waits.begin(), waits.begin() + static_cast<std::ptrdiff_t>(told), ", "),
                  waits.size() > told ? fmt::format(", and {} more", waits.size() - told) : "")};
}

std::optional<RowFault> Measure(const Schedule& schedule, const ScheduleNeeds& needs,
                                ScheduleUse& use) {
  use.in_flight.assign(static_cast<std::size_t>(schedule.stages), 0);
  std::vector<int> held(use.in_flight.size(), 0);
  for (int rank = 0; const auto& row : schedule.ranks) {
    double bytes = 0, most = 0;
    for (int index = 0; const Action& action : row) {
      const auto s = static_cast<std::size_t>(action.stage);
      const double its = needs.activation_bytes.empty() ? 0 : needs.activation_bytes[s];
      if (action.kind == kForward) {
        use.in_flight[s] = std::max(use.in_flight[s], ++held[s]);
        most = std::max(most, bytes += its);
      } else if (EndsMicroBatch(action.kind)) {
        --held[s];
        bytes -= its;
      }
      if (!needs.rank_bytes.empty() &&
          bytes > needs.rank_bytes[static_cast<std::size_t>(rank)] * (1 + 1e-9))
        return RowFault{{rank, index},
                        fmt::format("with {} rank {} holds {:.6g} bytes of activations, its limit "
                                    "is {:.6g}",
                                    ToText(action), rank, bytes,
                                    needs.rank_bytes[static_cast<std::size_t>(rank)])};
      ++index;
    }
    use.bytes.push_back(most);
    ++rank;
  }
  return std::nullopt;
}

std::optional<RowFault> FindFault(const Schedule& schedule, const ScheduleNeeds& needs,
                                  ScheduleUse& use) {
  if (auto fault = CheckNumbers(schedule, needs)) return fault;
  if (auto fault = CheckRows(schedule, needs)) return fault;
  if (auto fault = CheckSteps(schedule)) return fault;
  if (auto fault = CheckPairs(schedule)) return fault;
  if (auto fault = CheckReached(schedule)) return fault;
  return Measure(schedule, needs, use);
}

}  // namespace

tl::expected<ScheduleUse, ScheduleFault> CheckSchedule(const Schedule& schedule,
                                                       const ScheduleNeeds& needs) {
  ScheduleUse use;
  const auto fault = FindFault(schedule, needs, use);
  if (!fault) return use;
  return tl::unexpected(ScheduleFault{fault->message, ScheduleGrid(schedule, fault->place)});
}

}  // namespace adaptive_train
