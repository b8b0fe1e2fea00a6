#include "core/schedule/order_search.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <limits>
#include <random>
#include <vector>

namespace adaptive_train {
namespace {

using enum ActionKind;

constexpr double kWarmth = 0.01;       // of the makespan, at the beginning
constexpr std::size_t kFarthest = 12;  // places that an action moves at most

/// A forward or half a backward as a number: (kind, stage, micro-batch).
class Orders {
 public:
  using Rows = std::vector<std::vector<int>>;

  Orders(const UnevenPipeline& pipeline, const Schedule& schedule)
      : pipeline_(pipeline),
        stages_(schedule.stages),
        micro_batches_(schedule.micro_batches),
        begin_(static_cast<std::size_t>(3 * stages_ * micro_batches_)),
        ready_(begin_.size()),
        rank_pred_(begin_.size()),
        input_pred_(begin_.size()) {
    for (const auto& row : schedule.ranks) {
      rows.emplace_back();
      for (const Action& action : row) rows.back().push_back(NumberOf(action));
    }
  }

  Rows rows;

  Schedule ToSchedule() const {
    Schedule schedule{.stages = stages_, .micro_batches = micro_batches_, .ranks = {}};
    for (const std::vector<int>& row : rows) {
      schedule.ranks.emplace_back();
      for (const int number : row) schedule.ranks.back().push_back(ActionOf(number));
    }
    return schedule;
  }

  /// Infinity for rows that wait for each other. Fills what CriticalPairs reads.
  double Makespan();

  /// Places (rank, index) of critical actions that wait for the action before them on their rank,
  /// not for their input.
  struct Place {
    std::size_t rank, index;
  };
  std::vector<Place> CriticalPlaces() const;

  /// Moves an action; false where that would break an order or the limit of bytes, with the row as
  /// it was.
  bool Move(std::size_t rank, std::size_t from, std::size_t to);

 private:
  int NumberOf(const Action& action) const {
    const int kind = action.kind == kForward ? 0 : action.kind == kBackwardInput ? 1 : 2;
    return (kind * stages_ + action.stage) * micro_batches_ + action.micro_batch;
  }
  int KindOf(int number) const { return number / (stages_ * micro_batches_); }
  int StageOf(int number) const { return number / micro_batches_ % stages_; }
  int MicroBatchOf(int number) const { return number % micro_batches_; }
  Action ActionOf(int number) const {
    constexpr std::array kKinds{kForward, kBackwardInput, kBackwardWeight};
    return {StageOf(number), kKinds[static_cast<std::size_t>(KindOf(number))],
            MicroBatchOf(number)};
  }
  double DurationOf(int number) const {
    const StageSeconds& its = pipeline_.costs.stages[static_cast<std::size_t>(StageOf(number))];
    return KindOf(number) == 0   ? its.forward
           : KindOf(number) == 1 ? its.backward_input
                                 : its.backward_weight;
  }
  /// What of another stage, or of this rank's other chunk, it waits for; -1: nothing.
  int InputOf(int number) const {
    const int kind = KindOf(number), stage = StageOf(number), i = MicroBatchOf(number);
    if (kind == 0) return stage == 0 ? -1 : NumberOf({stage - 1, kForward, i});
    if (kind == 1 && stage + 1 < stages_) return NumberOf({stage + 1, kBackwardInput, i});
    return -1;
  }
  /// Whether `earlier` must stay before `later` on the same rank.
  bool MustPrecede(int earlier, int later) const {
    if (StageOf(earlier) != StageOf(later)) return false;
    return KindOf(earlier) == KindOf(later) ||
           (KindOf(earlier) < KindOf(later) && MicroBatchOf(earlier) == MicroBatchOf(later));
  }
  bool WithinLimit(std::size_t rank) const;

  const UnevenPipeline& pipeline_;
  const int stages_, micro_batches_;
  std::vector<double> begin_, ready_;  // ready_: when others can use what it makes; -1: not done
  std::vector<int> rank_pred_, input_pred_;
  double makespan_ = 0;
  int last_ = -1;  // to end
};

double Orders::Makespan() {
  std::fill(ready_.begin(), ready_.end(), -1.0);
  std::vector<std::size_t> next(rows.size(), 0);
  std::vector<double> free(rows.size(), 0);
  std::vector<std::array<double, 2>> link_free(rows.size(), {0, 0});
  std::size_t done = 0;
  makespan_ = 0;
  for (bool moved = true; moved;) {
    moved = false;
    for (std::size_t rank = 0; rank < rows.size(); ++rank) {
      const std::vector<int>& row = rows[rank];
      for (; next[rank] < row.size(); ++next[rank], ++done) {
        const int number = row[next[rank]];
        const auto n = static_cast<std::size_t>(number);
        const int input = InputOf(number);
        const double arrived = input < 0 ? 0 : ready_[static_cast<std::size_t>(input)];
        if (arrived < 0) break;
        begin_[n] = std::max(free[rank], arrived);
        input_pred_[n] = input >= 0 && arrived >= free[rank] ? input : -1;
        rank_pred_[n] = next[rank] > 0 ? row[next[rank] - 1] : -1;
        free[rank] = ready_[n] = begin_[n] + DurationOf(number);
        if (free[rank] > makespan_) {
          makespan_ = free[rank];
          last_ = number;
        }
        const int kind = KindOf(number), stage = StageOf(number);
        if (rows.size() > 1 && ((kind == 0 && stage + 1 < stages_) || (kind == 1 && stage > 0))) {
          double& link = link_free[rank][static_cast<std::size_t>(kind)];
          link = std::max(link, ready_[n]) +
                 pipeline_.costs.transfer_s[static_cast<std::size_t>(stage - kind)];
          ready_[n] = link;
        }
        moved = true;
      }
    }
  }
  if (done < begin_.size()) makespan_ = std::numeric_limits<double>::infinity();
  return makespan_;
}

std::vector<Orders::Place> Orders::CriticalPlaces() const {
  std::vector<bool> waits_for_rank(begin_.size(), false);
  for (int number = last_; number >= 0;) {
    const auto n = static_cast<std::size_t>(number);
    if (input_pred_[n] >= 0) {
      number = input_pred_[n];
    } else {
      waits_for_rank[n] = rank_pred_[n] >= 0;
      number = rank_pred_[n];
    }
  }
  std::vector<Place> places;
  for (std::size_t rank = 0; rank < rows.size(); ++rank)
    for (std::size_t i = 1; i < rows[rank].size(); ++i)
      if (waits_for_rank[static_cast<std::size_t>(rows[rank][i])]) places.push_back({rank, i});
  return places;
}

bool Orders::WithinLimit(std::size_t rank) const {
  double bytes = 0;
  for (const int number : rows[rank]) {
    const double its = pipeline_.activation_bytes[static_cast<std::size_t>(StageOf(number))];
    if (KindOf(number) == 0) bytes += its;
    if (KindOf(number) == 2) bytes -= its;
    if (bytes > pipeline_.rank_bytes[rank] * (1 + 1e-9)) return false;
  }
  return true;
}

bool Orders::Move(std::size_t rank, std::size_t from, std::size_t to) {
  std::vector<int>& row = rows[rank];
  const int moved = row[from];
  for (std::size_t i = from; i != to; i += from < to ? 1 : std::size_t(-1)) {
    const int passed = row[from < to ? i + 1 : i - 1];
    if (from < to ? MustPrecede(moved, passed) : MustPrecede(passed, moved)) return false;
  }
  const auto shift = [&row](std::size_t begin, std::size_t end) {
    const auto first = row.begin() + static_cast<std::ptrdiff_t>(std::min(begin, end));
    const auto last = row.begin() + static_cast<std::ptrdiff_t>(std::max(begin, end)) + 1;
    std::rotate(first, begin < end ? first + 1 : last - 1, last);
  };
  shift(from, to);
  if (WithinLimit(rank)) return true;
  shift(to, from);
  return false;
}

}  // namespace

Schedule ImprovedOrder(const UnevenPipeline& pipeline, const Schedule& schedule, int moves,
                       double enough_s) {
  Orders orders(pipeline, schedule);
  double now = orders.Makespan(), best = now;
  Orders::Rows best_rows = orders.rows;
  std::mt19937_64 random(1);
  std::vector<Orders::Place> critical = orders.CriticalPlaces();
  for (int move = 0; move < moves && best > enough_s && !critical.empty(); ++move) {
    const Orders::Place place = critical[random() % critical.size()];
    // Either the action goes before those that it waits for, or the one before it goes after it.
    const std::size_t far = 1 + random() % kFarthest;
    const bool earlier = random() % 2 == 0;
    const std::size_t from = earlier ? place.index : place.index - 1;
    const std::size_t to = earlier ? place.index - std::min(far, place.index)
                                   : std::min(from + far, orders.rows[place.rank].size() - 1);
    if (!orders.Move(place.rank, from, to)) continue;
    const double warmth = kWarmth * best * (1 - static_cast<double>(move) / moves);
    const double allowed =
        now - warmth * std::log(static_cast<double>(random() >> 11) * 0x1p-53 + 1e-300);
    const double makespan = orders.Makespan();
    if (makespan > allowed) {
      orders.Move(place.rank, to, from);
      continue;
    }
    now = makespan;
    critical = orders.CriticalPlaces();
    if (now >= best) continue;
    best = now;
    best_rows = orders.rows;
  }
  orders.rows = best_rows;
  return orders.ToSchedule();
}

}  // namespace adaptive_train
