// Answers to ranks that are slower than planned, while they train: other shares without a restart,
// or a spare in the node's place. Judges what it brought.
#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "core/plan_shares.h"
#include "core/step_metrics.h"
#include "launcher/run/replan_watch.h"
#include "launcher/run/replica_times.h"
#include "launcher/run/slow_places.h"

namespace adaptive_train {

/// Serves the ranks of one plan of two replicas or more, also when they are launched again. No I/O;
/// one thread.
///
/// Where a place is slow (SlowPlaces) the replicas get shares by their speed, if shares can change
/// and the longest computing is then expected to be kLeastGain shorter. Another window later steps
/// are compared with those before. If their median is not shorter, a spare takes the place of the
/// node; without one the shares are taken back, and none change any more. A place that is fast again
/// gets its share back.
class Rebalancer {
 public:
  static constexpr double kLeastGain = 0.05;
  static constexpr std::size_t kSkipped = 2;  // first steps of a launch or with new shares
  static constexpr int kMostChanges = 3;      // of shares because of one replica that is slow

  /// What was done, and the steps before it.
  struct Deed {
    std::string what;  // "the share of rank 3 on n4 went from 4 to 2 sequences"
    StepTimes before;
  };
  /// A node that was found to be slow.
  struct Slow {
    int rank = 0;  // the first of the slow ones
    std::string node;
    std::string how;  // "rank 3 on n4 computes 1.80 times as long as planned (20 steps, +-1.0 %)"
  };
  struct Answer {
    std::optional<Shares> ask = {};           // let the ranks take these
    std::optional<Shares> taken = {};         // the ranks have these since this step
    std::optional<std::string> replace = {};  // node whose place a spare should take
    bool in_vain = false;   // the last spare made steps no faster: no other should take a place
    std::string line = {};  // for people and the plan; may be empty
    std::optional<Slow> slow = {};
  };

  struct Settings {
    std::string fixed = {};                     // why shares stay, beside FixedShares; may be empty
    std::vector<std::string> replaceable = {};  // nodes whose place a spare could take
    std::optional<Deed> deed = {};  // done before the plan's ranks began; is to be judged
  };
  /// `planned` as PlaceSecondsOf(plan) gives it.
  Rebalancer(const Plan& plan, std::vector<PlaceSeconds> planned, Settings settings);

  /// The plan's ranks were launched again, with the shares that they had last.
  void BeginLaunch();
  /// After a step of all ranks (index = rank), which took `step_s`. A move to a spare must save more
  /// than `moving_s` of each step. After `replace` it is not called again.
  Answer AfterStep(std::span<const RankMetrics> ranks, double step_s, double moving_s);

  /// With `replace`: what to judge after it.
  const Deed& Replacing() const { return replacing_; }

 private:
  /// What is asked for or judged.
  struct Change {
    Deed deed;
    Shares to, back;  // empty: a spare took a place
    std::size_t place = 0;
    bool taken_back = false;  // to where they were: nothing to judge
  };

  Answer Begin();
  Answer Act(const OffPlace& off, std::size_t steps, const StepTimes& before);
  Answer Answered(const OffPlace& off, const std::string& found, const StepTimes& before);
  Answer Judge(const StepTimes& after, const std::optional<OffPlace>& off);
  std::string WhyStays(const OffPlace& off, const Shares& to) const;
  Answer Replace(std::size_t place, std::string line, const StepTimes& steps);
  std::string NameOf(std::size_t place) const;
  void Restart();

  const std::int64_t global_batch_;
  const int tensor_;
  const ShareRule rule_;
  std::string fixed_;               // why shares stay; empty: they can change
  std::vector<std::string> nodes_;  // index = place
  std::vector<std::string> replaceable_;
  ReplicaTimes times_;
  SlowPlaces watch_;
  Shares shares_;                // that the ranks have
  std::vector<double> steps_s_;  // of the window under way
  double moving_s_ = 0;          // of the step under way
  std::optional<Change> asked_;  // until the ranks have them
  bool ask_again_ = false;
  std::optional<Change> judging_;
  std::size_t to_skip_ = kSkipped;
  std::vector<int> changes_;  // index = replica
  Deed replacing_;
};

}  // namespace adaptive_train
