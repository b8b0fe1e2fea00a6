// The subset oracle's search among layouts without pipeline.
#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <vector>

#include "tests/oracle/found.h"
#include "tests/oracle/groups.h"

namespace adaptive_train::oracle {

/// Searches layouts of one stage and `data` replicas for one that takes less than `best` and puts
/// it there. Samples are shared exactly: for each number of samples given out, the pairs (slowest
/// replica, shortest last backward) of which none is better in both are kept.
class SingleStageSearch {
 public:
  /// Keeps references to problem, groups, exchanges and best. `requested`: the micro-batch, or 0.
  SingleStageSearch(const PlanProblem& problem, const Groups& groups, Exchanges& exchanges,
                    int data, int shard, Recompute recompute, std::int64_t requested,
                    std::optional<Best>& best);
  void Run();

 private:
  /// One replica with a number of samples.
  struct Option {
    bool fits = false;
    ReplicaShare share;
    double seconds = 0;
    double last_backward = 0;
  };
  struct Label {
    double slowest = 0;
    double last_backward = 0;  // the shortest
    std::vector<ReplicaShare> shares;
  };

  void PlaceReplicas(int first, DeviceSet used);
  void ShareOut();
  std::vector<Option> OptionsOf(int group) const;
  Option OptionOf(int group, const ReplicaShare& share) const;
  void Extend(const std::vector<Label>& labels, std::int64_t given, const Option& option,
              std::vector<std::vector<Label>>& next) const;
  void Keep(const Label& label);
  LayerRange All() const { return {0, static_cast<int>(problem_.layers.size())}; }

  const PlanProblem& problem_;
  const Groups& groups_;
  Exchanges& exchanges_;
  int data_, shard_;
  Recompute recompute_;
  std::int64_t requested_;
  std::optional<Best>& best_;
  std::vector<std::vector<Option>> options_;  // [group][samples]
  std::vector<int> members_;
  std::set<std::vector<int>> seen_;  // likenesses of members
};

}  // namespace adaptive_train::oracle
