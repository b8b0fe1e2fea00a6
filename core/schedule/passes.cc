#include "core/schedule/passes.h"

#include <algorithm>
#include <deque>
#include <map>
#include <optional>
#include <utility>

namespace adaptive_train {
namespace {

using enum ActionKind;

/// The message that carries what `action` makes to a neighbour on another rank, or that brings it
/// what it reads.
struct Message {
  Action send, receive;
  int from = 0, to = 0;  // ranks
};

class Messages {
 public:
  explicit Messages(const Schedule& schedule) : schedule_(schedule) {
    for (const auto& row : schedule.ranks)
      for (const Action& action : row)
        if (const auto message = MadeBy(action))
          unposted_[{message->to, message->from}].push_back(message->receive);
  }

  std::optional<Message> MadeBy(const Action& action) const {
    const int step = action.kind == kForward ? 1 : -1;
    const int neighbour = action.stage + step;
    if ((action.kind != kForward && !MakesInputGradient(action.kind)) || neighbour < 0 ||
        neighbour >= schedule_.stages)
      return std::nullopt;
    const Message message{
        {action.stage, step > 0 ? kSendForward : kSendBackward, action.micro_batch},
        {neighbour, step > 0 ? kReceiveForward : kReceiveBackward, action.micro_batch},
        schedule_.RankOf(action.stage),
        schedule_.RankOf(neighbour)};
    if (message.from == message.to) return std::nullopt;
    return message;
  }

  /// Posts what `action` reads, and what the other rank sends before that.
  void Post(const Action& action, std::vector<Action>& row) {
    const bool forward = action.kind == kForward;
    if (!forward && !MakesInputGradient(action.kind)) return;
    const int neighbour = action.stage + (forward ? -1 : 1);
    if (neighbour < 0 || neighbour >= schedule_.stages) return;
    const Action receive{action.stage, forward ? kReceiveForward : kReceiveBackward,
                         action.micro_batch};
    auto& unposted = unposted_[{schedule_.RankOf(action.stage), schedule_.RankOf(neighbour)}];
    if (std::find(unposted.begin(), unposted.end(), receive) == unposted.end()) return;
    for (bool posted = false; !posted; unposted.pop_front()) {
      row.push_back(unposted.front());
      posted = unposted.front() == receive;
    }
  }

 private:
  const Schedule& schedule_;
  /// Receives in the order of the sends, of (receiver, sender).
  std::map<std::pair<int, int>, std::deque<Action>> unposted_;
};

/// Puts `before(i)` in front of the row's action i, and what it gives for the row's size behind.
template <class Before>
std::vector<Action> Inserted(const std::vector<Action>& row, Before before) {
  std::vector<Action> inserted;
  for (std::size_t i = 0; i <= row.size(); ++i) {
    before(i, inserted);
    if (i < row.size()) inserted.push_back(row[i]);
  }
  return inserted;
}

/// The forward or backward at `begin` or the next one behind it, and the one that follows.
std::vector<Action> NextTwo(const std::vector<Action>& row, std::size_t begin) {
  std::vector<Action> next;
  for (std::size_t i = begin; i < row.size() && next.size() < 2; ++i)
    if (IsCompute(row[i].kind)) next.push_back(row[i]);
  return next;
}

/// Whether the micro-batch is the last one of its step.
bool EndsStep(const Schedule& schedule, int micro_batch, int steps) {
  return (micro_batch + 1) % (schedule.micro_batches / steps) == 0;
}

/// Whether the update must be made before `next`: its gradients would go into the next sum, or it
/// reads weights that must not lack more than one update.
bool MustStepBefore(const Schedule& schedule, const Action& step, const Action& next, int steps) {
  if (step.stage != next.stage) return false;
  if (next.kind != kForward) return EndsMicroBatch(next.kind);
  return next.micro_batch > step.micro_batch + schedule.micro_batches / steps;
}

}  // namespace

Schedule AddSendsAndReceives(const Schedule& schedule) {
  Schedule result = schedule;
  Messages messages(schedule);
  for (std::size_t rank = 0; rank < schedule.ranks.size(); ++rank) {
    const std::vector<Action>& row = schedule.ranks[rank];
    result.ranks[rank] = Inserted(row, [&](std::size_t i, std::vector<Action>& out) {
      if (i > 0)
        if (const auto message = messages.MadeBy(row[i - 1])) out.push_back(message->send);
      for (const Action& action : NextTwo(row, i)) messages.Post(action, out);
    });
  }
  return result;
}

Schedule AddGathers(const Schedule& schedule) {
  Schedule result = schedule;
  std::vector<bool> gathered(static_cast<std::size_t>(schedule.stages), false);
  for (std::size_t rank = 0; rank < schedule.ranks.size(); ++rank) {
    const std::vector<Action>& row = schedule.ranks[rank];
    result.ranks[rank] = Inserted(row, [&](std::size_t i, std::vector<Action>& out) {
      for (const Action& action : NextTwo(row, i)) {
        const auto stage = static_cast<std::size_t>(action.stage);
        if (action.kind != kForward || gathered[stage]) continue;
        gathered[stage] = true;
        out.push_back({action.stage, kGather, 0});
      }
    });
  }
  return result;
}

Schedule AddReduces(const Schedule& schedule, int steps) {
  Schedule result = schedule;
  for (std::size_t rank = 0; rank < schedule.ranks.size(); ++rank) {
    const std::vector<Action>& row = schedule.ranks[rank];
    result.ranks[rank] = Inserted(row, [&](std::size_t i, std::vector<Action>& out) {
      if (i == 0 || !EndsMicroBatch(row[i - 1].kind)) return;
      if (EndsStep(schedule, row[i - 1].micro_batch, steps))
        out.push_back({row[i - 1].stage, kReduce, row[i - 1].micro_batch});
    });
  }
  return result;
}

Schedule AddSteps(const Schedule& schedule, int steps) {
  Schedule result = schedule;
  for (std::size_t rank = 0; rank < schedule.ranks.size(); ++rank) {
    const std::vector<Action>& row = schedule.ranks[rank];
    std::vector<Action> due;  // steps whose gradients are complete, in that order
    const auto make = [&](auto which, std::vector<Action>& out) {
      const auto rest = std::stable_partition(due.begin(), due.end(), which);
      out.insert(out.end(), due.begin(), rest);
      due.erase(due.begin(), rest);
    };
    result.ranks[rank] = Inserted(row, [&](std::size_t i, std::vector<Action>& out) {
      if (i > 0 && EndsMicroBatch(row[i - 1].kind) &&
          EndsStep(schedule, row[i - 1].micro_batch, steps))
        due.push_back({row[i - 1].stage, kStep, row[i - 1].micro_batch});
      if (i == row.size()) return make([](const Action&) { return true; }, out);
      make([&](const Action& step) { return MustStepBefore(schedule, step, row[i], steps); }, out);
    });
  }
  return result;
}

std::vector<std::vector<Action>> RowsOfSteps(const std::vector<Action>& row, int micro_batches) {
  std::vector<std::vector<Action>> rows(1);
  int before = 0;
  for (Action action : row) {
    if (action.kind == kStep) continue;
    action.micro_batch -= before;
    rows.back().push_back(action);
    if (action.kind != kReduce) continue;
    rows.emplace_back();
    before += micro_batches;
  }
  rows.pop_back();
  return rows;
}

Schedule WithPasses(const Schedule& compute_order, const SchedulePasses& passes) {
  Schedule schedule = compute_order;
  if (passes.gather) schedule = AddGathers(schedule);
  if (passes.reduce) schedule = AddReduces(schedule, passes.steps);
  return AddSendsAndReceives(AddSteps(schedule, passes.steps));
}

}  // namespace adaptive_train
