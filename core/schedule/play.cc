#include "core/schedule/play.h"

#include <algorithm>
#include <array>
#include <cassert>
#include <numeric>

#include "core/schedule/action_table.h"
#include "core/schedule/dry_run.h"

namespace adaptive_train {
namespace {

using enum ActionKind;

constexpr double kNotBegun = -1;

class Play {
 public:
  Play(const Schedule& schedule, const PlayCosts& costs)
      : schedule_(schedule),
        costs_(costs),
        has_sends_(HasSends(schedule)),
        there_(schedule, kNotBegun),
        ranks_(schedule.ranks.size()),
        gathered_(static_cast<std::size_t>(schedule.stages), 0),
        reduced_(static_cast<std::size_t>(schedule.stages), 0) {
    result_.ranks.resize(schedule.ranks.size());
    result_.busy_s.assign(schedule.ranks.size(), 0);
  }

  SchedulePlay Run() {
    for (bool moved = true; moved;) {
      moved = false;
      for (std::size_t rank = 0; rank < ranks_.size(); ++rank)
        while (TakeNext(rank)) moved = true;
    }
    for (std::size_t rank = 0; rank < ranks_.size(); ++rank)
      assert(result_.ranks[rank].size() == schedule_.ranks[rank].size());
    return std::move(result_);
  }

 private:
  struct Rank {
    double free = 0;                               // when it has nothing to do
    double waited = 0;                             // since it computed
    std::array<double, kActionKinds> link_free{};  // of what runs beside it, by kind
  };

  const StageSeconds& Costs(const Action& action) const {
    return costs_.stages[static_cast<std::size_t>(action.stage)];
  }

  /// Seconds of the rank's own time.
  double Duration(const Action& action, double waited) const {
    const StageSeconds& costs = Costs(action);
    const double moved = std::min(costs.moving, waited);
    switch (action.kind) {
      case kForward:
        return costs.forward - moved;
      case kBackward:
        return costs.backward_input - moved + costs.backward_weight;
      case kBackwardInput:
        return costs.backward_input - moved;
      case kBackwardWeight:
        return costs.backward_weight;
      case kStep:
        return costs.step;
      default:
        return 0;
    }
  }

  /// Seconds that the action goes on beside the rank.
  double Beside(const Action& action) const {
    if (action.kind == kReduce) return Costs(action).reduce;
    if (action.kind == kGather) return Costs(action).gather;
    if (!IsSend(action.kind)) return 0;
    const int first = action.stage - (action.kind == kSendForward ? 0 : 1);
    return costs_.transfer_s[static_cast<std::size_t>(first)];
  }

  /// What is made is there for the neighbour; without sends, when the message is.
  void Deliver(Rank& rank, const Action& action, double end) {
    const bool forward = action.kind == kForward;
    const int neighbour = action.stage + (forward ? 1 : -1);
    const bool goes_out = !has_sends_ && (forward || MakesInputGradient(action.kind)) &&
                          neighbour >= 0 && neighbour < schedule_.stages &&
                          schedule_.RankOf(neighbour) != schedule_.RankOf(action.stage);
    there_.At(action) =
        goes_out
            ? Sent(rank, {action.stage, forward ? kSendForward : kSendBackward, action.micro_batch},
                   end)
            : end;
  }

  double Sent(Rank& rank, const Action& action, double from) {
    double& link_free = rank.link_free[static_cast<std::size_t>(action.kind)];
    return link_free = std::max(link_free, from) + Beside(action);
  }

  bool TakeNext(std::size_t number) {
    const auto& row = schedule_.ranks[number];
    auto& played = result_.ranks[number];
    if (played.size() == row.size()) return false;
    const Action& action = row[played.size()];
    const auto input = InputOf(schedule_, action, has_sends_);
    if (input && there_.At(*input) == kNotBegun) return false;
    Rank& rank = ranks_[number];
    double begin = std::max(rank.free, input ? there_.At(*input) : 0);
    const auto stage = static_cast<std::size_t>(action.stage);
    if (action.kind == kForward) begin = std::max(begin, gathered_[stage]);
    if (action.kind == kStep) begin = std::max(begin, reduced_[stage]);
    rank.waited += begin - rank.free;
    const double duration = Duration(action, rank.waited);
    if (duration > 0) rank.waited = 0;
    rank.free = begin + duration;
    result_.busy_s[number] += duration;
    double end = rank.free;
    if (Beside(action) > 0) end = Sent(rank, action, begin);
    if (action.kind == kGather) gathered_[stage] = end;
    if (action.kind == kReduce) reduced_[stage] = end;
    Deliver(rank, action, end);
    result_.makespan_s = std::max(result_.makespan_s, end);
    played.push_back({action, begin, end});
    return true;
  }

  const Schedule& schedule_;
  const PlayCosts& costs_;
  const bool has_sends_;
  ActionTable<double> there_;  // when what an action makes can be used by others
  std::vector<Rank> ranks_;
  std::vector<double> gathered_, reduced_;  // ends of each stage's last ones
  SchedulePlay result_;
};

}  // namespace

double SchedulePlay::Bubble() const {
  const double all = makespan_s * static_cast<double>(ranks.size());
  return all > 0 ? 1 - std::accumulate(busy_s.begin(), busy_s.end(), 0.0) / all : 0;
}

SchedulePlay PlaySchedule(const Schedule& schedule, const PlayCosts& costs) {
  assert(costs.stages.size() == static_cast<std::size_t>(schedule.stages));
  assert(costs.transfer_s.size() + 1 == costs.stages.size());
  return Play(schedule, costs).Run();
}

}  // namespace adaptive_train
