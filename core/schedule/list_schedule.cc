#include "core/schedule/list_schedule.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <optional>

#include "core/limits.h"
#include "core/schedule/order_search.h"

namespace adaptive_train {
namespace {

using enum ActionKind;

constexpr double kNever = std::numeric_limits<double>::infinity();
constexpr std::int64_t kMostForwards = 1'000'000;

/// What the priority lists differ in.
struct ListRule {
  double gap_share = 1;        // weights' gradients go into gaps of this share of their time
  bool forward_first = false;  // where a forward and a backward could both begin
  bool runs_ahead = false;     // further than there are stages to the end of the pipeline
};

/// One list schedule. Ranks take turns by the time at which they begin their next action, so that
/// whatever was made before is known.
class ListRun {
 public:
  ListRun(const UnevenPipeline& pipeline, const ListRule& rule)
      : pipeline_(pipeline),
        rule_(rule),
        stages_(static_cast<int>(pipeline.costs.stages.size())),
        stage_(pipeline.costs.stages.size()),
        rank_(static_cast<std::size_t>(pipeline.ranks)) {
    stage_.front().forward_input.assign(static_cast<std::size_t>(pipeline.micro_batches), 0);
  }

  /// Every rank's row.
  Schedule Run() {
    Schedule schedule{.stages = stages_, .micro_batches = pipeline_.micro_batches, .ranks = {}};
    schedule.ranks.resize(rank_.size());
    std::vector<std::optional<Choice>> choices;
    choices.reserve(rank_.size());
    for (int rank = 0; rank < pipeline_.ranks; ++rank) choices.push_back(Choose(rank));
    for (;;) {
      std::optional<Choice> earliest;
      for (const std::optional<Choice>& choice : choices)
        if (choice) Keep(earliest, *choice);
      if (!earliest) return schedule;
      Take(*earliest);
      const int rank = earliest->action.stage % pipeline_.ranks;
      schedule.ranks[static_cast<std::size_t>(rank)].push_back(earliest->action);
      // Nobody else has got anything new.
      for (const int changed : {rank, rank + 1, rank + pipeline_.ranks - 1})
        choices[static_cast<std::size_t>(changed % pipeline_.ranks)] =
            Choose(changed % pipeline_.ranks);
    }
  }

 private:
  struct Stage {
    int forwards = 0, inputs = 0, weights = 0;  // done
    /// When inputs and gradients of outputs are there, of the micro-batches so far.
    std::vector<double> forward_input{}, backward_input{};
  };
  struct Rank {
    double free = 0;
    double bytes = 0;
    std::array<double, 2> link_free{};  // to the next and to the rank before
  };
  struct Choice {
    Action action;
    double begin = 0;
  };

  const StageSeconds& Costs(int stage) const {
    return pipeline_.costs.stages[static_cast<std::size_t>(stage)];
  }
  double Bytes(int stage) const {
    return pipeline_.activation_bytes[static_cast<std::size_t>(stage)];
  }

  /// Each later chunk of the rank keeps room for one micro-batch, so that what is under way can
  /// always come to its end.
  bool HasRoom(int rank, int stage) const {
    const auto r = static_cast<std::size_t>(rank);
    double needed = rank_[r].bytes + Bytes(stage);
    for (int later = stage + pipeline_.ranks; later < stages_; later += pipeline_.ranks) {
      const Stage& its = stage_[static_cast<std::size_t>(later)];
      if (its.forwards == its.weights) needed += Bytes(later);
    }
    return needed <= pipeline_.rank_bytes[r] * (1 + 1e-9);
  }

  bool RunsTooFarAhead(int stage) const {
    const Stage& its = stage_[static_cast<std::size_t>(stage)];
    return !rule_.runs_ahead && its.forwards - its.inputs >= stages_ - stage;
  }

  static void Keep(std::optional<Choice>& best, const Choice& choice) {
    if (!best || choice.begin < best->begin) best = choice;
  }
  /// Of a rank's forwards that could begin at the same time the one of the last chunk.
  static void KeepLast(std::optional<Choice>& best, const Choice& choice) {
    if (!best || choice.begin <= best->begin) best = choice;
  }

  /// The rank's next action, if it knows one.
  std::optional<Choice> Choose(int rank) const {
    const double free = rank_[static_cast<std::size_t>(rank)].free;
    std::optional<Choice> forward, backward, weight;
    bool full = false;
    for (int s = rank; s < stages_; s += pipeline_.ranks) {
      const Stage& its = stage_[static_cast<std::size_t>(s)];
      const auto f = static_cast<std::size_t>(its.forwards),
                 i = static_cast<std::size_t>(its.inputs);
      if (i < its.backward_input.size())
        Keep(backward, {{s, kBackwardInput, its.inputs}, std::max(free, its.backward_input[i])});
      if (its.weights < its.inputs) Keep(weight, {{s, kBackwardWeight, its.weights}, free});
      if (f >= its.forward_input.size() || RunsTooFarAhead(s)) continue;
      if (HasRoom(rank, s)) {
        KeepLast(forward, {{s, kForward, its.forwards}, std::max(free, its.forward_input[f])});
      } else {
        full = full || its.forward_input[f] <= free;
      }
    }
    if (weight && full && !forward && (!backward || backward->begin > free || rule_.forward_first))
      return weight;
    const std::optional<Choice> next = Sooner(forward, backward);
    if (!weight) return next;
    const double gap = next ? next->begin - free : kNever;
    return gap >= rule_.gap_share * Costs(weight->action.stage).backward_weight && gap > 0 ? weight
                                                                                           : next;
  }

  std::optional<Choice> Sooner(const std::optional<Choice>& forward,
                               const std::optional<Choice>& backward) const {
    if (!forward || !backward) return forward ? forward : backward;
    if (forward->begin != backward->begin)
      return forward->begin < backward->begin ? forward : backward;
    return rule_.forward_first ? forward : backward;
  }

  void Take(const Choice& choice) {
    const int s = choice.action.stage;
    Stage& its = stage_[static_cast<std::size_t>(s)];
    Rank& rank = rank_[static_cast<std::size_t>(s % pipeline_.ranks)];
    switch (choice.action.kind) {
      case kForward:
        ++its.forwards;
        rank.bytes += Bytes(s);
        rank.free = choice.begin + Costs(s).forward;
        if (s + 1 < stages_) {
          stage_[static_cast<std::size_t>(s) + 1].forward_input.push_back(
              Arrival(rank, 0, static_cast<std::size_t>(s)));
        } else {
          its.backward_input.push_back(rank.free);
        }
        break;
      case kBackwardInput:
        ++its.inputs;
        rank.free = choice.begin + Costs(s).backward_input;
        if (s > 0)
          stage_[static_cast<std::size_t>(s) - 1].backward_input.push_back(
              Arrival(rank, 1, static_cast<std::size_t>(s) - 1));
        break;
      default:
        ++its.weights;
        rank.bytes -= Bytes(s);
        rank.free = choice.begin + Costs(s).backward_weight;
    }
  }

  /// Of what the rank has just made, across the boundary after stage `boundary`.
  double Arrival(Rank& rank, std::size_t direction, std::size_t boundary) const {
    if (pipeline_.ranks == 1) return rank.free;
    double& link_free = rank.link_free[direction];
    return link_free = std::max(link_free, rank.free) + pipeline_.costs.transfer_s[boundary];
  }

  const UnevenPipeline& pipeline_;
  const ListRule rule_;
  const int stages_;
  std::vector<Stage> stage_;
  std::vector<Rank> rank_;
};

bool IsTime(double seconds) { return std::isfinite(seconds) && seconds >= 0; }

Result<void> CheckPipeline(const UnevenPipeline& pipeline) {
  const std::size_t stages = pipeline.costs.stages.size();
  const auto ranks = static_cast<std::size_t>(std::max(0, pipeline.ranks));
  if (pipeline.micro_batches < 1 || ranks < 1 || ranks > kMostRanks || stages < ranks ||
      stages % ranks != 0 ||
      pipeline.micro_batches > kMostForwards / static_cast<std::int64_t>(stages))
    return Fail(
        fmt::format("{} stages on {} ranks, {} micro-batches: each rank has as many "
                    "stages, and there are at most {} forwards",
                    stages, pipeline.ranks, pipeline.micro_batches, kMostForwards));
  if (pipeline.costs.transfer_s.size() + 1 != stages ||
      pipeline.activation_bytes.size() != stages || pipeline.rank_bytes.size() != ranks)
    return Fail(
        fmt::format("{} stages on {} ranks with {} transfers, bytes of {} stages and "
                    "limits of {} ranks",
                    stages, ranks, pipeline.costs.transfer_s.size(),
                    pipeline.activation_bytes.size(), pipeline.rank_bytes.size()));
  std::vector<double> needed(ranks, 0);
  for (std::size_t s = 0; s < stages; ++s) {
    const StageSeconds& its = pipeline.costs.stages[s];
    const double transfer = s + 1 < stages ? pipeline.costs.transfer_s[s] : 0;
    if (!IsTime(its.forward) || !IsTime(its.backward_input) || !IsTime(its.backward_weight) ||
        !IsTime(transfer) || !IsTime(pipeline.activation_bytes[s]))
      return Fail(fmt::format("stage {} has a time or size that is negative or not finite", s));
    needed[s % ranks] += pipeline.activation_bytes[s];
  }
  for (std::size_t rank = 0; rank < ranks; ++rank) {
    if (needed[rank] <= pipeline.rank_bytes[rank]) continue;
    return Fail(
        fmt::format("rank {} may hold {:.6g} bytes of activations; one micro-batch of each "
                    "of its stages takes {:.6g}",
                    rank, pipeline.rank_bytes[rank], needed[rank]));
  }
  return {};
}

std::vector<ListRule> Rules() {
  std::vector<ListRule> rules;
  for (const bool forward_first : {false, true})
    for (const bool runs_ahead : {false, true})
      for (const double gap_share : {0.0, 0.5, 1.0})
        rules.push_back({gap_share, forward_first, runs_ahead});
  return rules;
}

}  // namespace

Result<ListSchedule> MakeListSchedule(const UnevenPipeline& pipeline, int moves) {
  if (const auto fits = CheckPipeline(pipeline); !fits) return tl::unexpected<Error>(fits.error());
  ListSchedule best{.schedule = {}, .makespan_s = kNever, .bound_s = ScheduleBound(pipeline)};
  for (const ListRule& rule : Rules()) {
    Schedule schedule = ListRun(pipeline, rule).Run();
    const double makespan = PlaySchedule(schedule, pipeline.costs).makespan_s;
    if (makespan >= best.makespan_s) continue;
    best.makespan_s = makespan;
    best.schedule = std::move(schedule);
  }
  best.schedule = ImprovedOrder(pipeline, best.schedule, moves, best.bound_s * (1 + 1e-3));
  best.makespan_s = PlaySchedule(best.schedule, pipeline.costs).makespan_s;
  return best;
}

}  // namespace adaptive_train
