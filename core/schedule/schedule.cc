#include "core/schedule/schedule.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>

#include "core/limits.h"

namespace adaptive_train {
namespace {

constexpr std::array<std::string_view, kActionKinds> kActionNames{
    "F", "B", "I", "W", "SEND_F", "RECV_F", "SEND_B", "RECV_B", "REDUCE", "GATHER", "STEP"};
constexpr int kMostNumber = 1'000'000;  // of a stage or micro-batch
constexpr std::size_t kMostShownBytes = 40;

/// A number of at most seven digits at the front, which it takes off.
std::optional<int> TakeNumber(std::string_view& text) {
  int number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || text.front() == '-' || number >= kMostNumber) return std::nullopt;
  text.remove_prefix(static_cast<std::size_t>(end - text.data()));
  return number;
}

/// As people may see it: one line, no control characters, not long.
std::string Shown(std::string_view text) {
  std::string shown(text.substr(0, kMostShownBytes));
  for (char& c : shown)
    if (static_cast<unsigned char>(c) < 0x20 || static_cast<unsigned char>(c) >= 0x7f) c = '?';
  return text.size() > kMostShownBytes ? shown + "..." : shown;
}

std::string_view Trimmed(std::string_view text) {
  const auto blank = [](char c) { return c == ' ' || c == '\t' || c == '\r'; };
  while (!text.empty() && blank(text.front())) text.remove_prefix(1);
  while (!text.empty() && blank(text.back())) text.remove_suffix(1);
  return text;
}

/// What is before the next `separator`; the rest, without it, stays in `text`.
std::string_view TakeUntil(std::string_view& text, char separator) {
  const std::size_t end = std::min(text.find(separator), text.size());
  const std::string_view part = text.substr(0, end);
  text.remove_prefix(std::min(end + 1, text.size()));
  return part;
}

Result<std::vector<Action>> RowFromText(std::string_view row, std::size_t number) {
  std::vector<Action> actions;
  for (bool more = !row.empty(); more;) {
    more = row.find(',') != std::string_view::npos;
    const auto action = ActionFromText(Trimmed(TakeUntil(row, ',')));
    if (!action)
      return FailIn(fmt::format("row {}, column {}", number, actions.size() + 1), action.error());
    actions.push_back(*action);
  }
  return actions;
}

}  // namespace

bool IsCompute(ActionKind kind) { return kind <= ActionKind::kBackwardWeight; }

bool MakesInputGradient(ActionKind kind) {
  return kind == ActionKind::kBackward || kind == ActionKind::kBackwardInput;
}

bool EndsMicroBatch(ActionKind kind) {
  return kind == ActionKind::kBackward || kind == ActionKind::kBackwardWeight;
}

int MostInFlight(std::span<const Action> row, int stage) {
  int held = 0, most = 0;
  for (const Action& action : row) {
    if (action.stage != stage) continue;
    if (action.kind == ActionKind::kForward) most = std::max(most, ++held);
    if (EndsMicroBatch(action.kind)) --held;
  }
  return most;
}

bool HasHalves(std::span<const Action> row) {
  return std::any_of(row.begin(), row.end(), [](const Action& action) {
    return action.kind == ActionKind::kBackwardWeight;
  });
}

bool IsSend(ActionKind kind) {
  return kind == ActionKind::kSendForward || kind == ActionKind::kSendBackward;
}

bool IsReceive(ActionKind kind) {
  return kind == ActionKind::kReceiveForward || kind == ActionKind::kReceiveBackward;
}

std::string ToText(const Action& action) {
  return fmt::format("{}{}{}", action.stage, kActionNames[static_cast<std::size_t>(action.kind)],
                     action.micro_batch);
}

Result<Action> ActionFromText(std::string_view text) {
  std::string_view rest = text;
  const auto fail = [&](std::string_view why) {
    return Fail(fmt::format("'{}' {}; an action is a stage, one of {}, and a micro-batch, as 2F0",
                            Shown(text), why, fmt::join(kActionNames, " ")));
  };
  const std::optional<int> stage = TakeNumber(rest);
  if (!stage) return fail("does not begin with a stage below 1000000");
  const auto name = rest.substr(0, std::min(rest.find_first_of("0123456789-"), rest.size()));
  const auto found = std::find(kActionNames.begin(), kActionNames.end(), name);
  if (found == kActionNames.end()) return fail("names no action");
  rest.remove_prefix(name.size());
  const std::optional<int> micro_batch = TakeNumber(rest);
  if (!micro_batch || !rest.empty()) return fail("does not end with a micro-batch below 1000000");
  return Action{*stage, static_cast<ActionKind>(found - kActionNames.begin()), *micro_batch};
}

std::string ToCsv(const Schedule& schedule) {
  std::string text;
  for (const std::vector<Action>& row : schedule.ranks) {
    for (std::size_t i = 0; i < row.size(); ++i) text += (i > 0 ? "," : "") + ToText(row[i]);
    text += '\n';
  }
  return text;
}

Result<Schedule> ScheduleFromCsv(std::string_view text) {
  Schedule schedule;
  std::int64_t actions = 0;
  while (!text.empty()) {
    if (schedule.ranks.size() == kMostRanks)
      return Fail(fmt::format("more than {} rows; a schedule has one for each rank", kMostRanks));
    auto row = RowFromText(Trimmed(TakeUntil(text, '\n')), schedule.ranks.size() + 1);
    if (!row) return tl::unexpected<Error>(row.error());
    for (const Action& action : *row) {
      schedule.stages = std::max(schedule.stages, action.stage + 1);
      schedule.micro_batches = std::max(schedule.micro_batches, action.micro_batch + 1);
    }
    actions += static_cast<std::int64_t>(row->size());
    schedule.ranks.push_back(std::move(*row));
  }
  if (actions == 0) return Fail("a schedule without actions; a line for each rank is needed");
  const std::int64_t needed = std::int64_t{2} * schedule.stages * schedule.micro_batches;
  if (actions < needed)
    return Fail(fmt::format("{} actions for {} stages and {} micro-batches, which need {} or more",
                            actions, schedule.stages, schedule.micro_batches, needed));
  return schedule;
}

}  // namespace adaptive_train
