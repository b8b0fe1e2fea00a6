#include "tests/oracle/subset_oracle.h"

#include <algorithm>
#include <cstddef>
#include <limits>

#include "tests/oracle/groups.h"
#include "tests/oracle/pipelines.h"
#include "tests/oracle/single_stage.h"

namespace adaptive_train::oracle {
namespace {

constexpr std::size_t kFewLabels = 40;

class Search {
 public:
  explicit Search(const PlanProblem& problem) : problem_(problem) {}

  std::optional<Best> Run() {
    const auto devices = static_cast<int>(problem_.devices.size());
    // All single stages and a narrow search first, so that the exact one has something to beat.
    for (const std::size_t most_labels : {kFewLabels, std::numeric_limits<std::size_t>::max()})
      for (const int tensor : Allowed(problem_.choices.tensor, devices)) {
        const Groups groups(problem_, tensor);
        for (const int shard : problem_.choices.shard) {
          if (most_labels == kFewLabels) SearchSingleStages(groups, shard);
          SearchPipelines(groups, shard, most_labels);
        }
      }
    return best_;
  }

 private:
  /// Stages times replicas.
  int Places(const Groups& groups) const {
    return static_cast<int>(problem_.devices.size()) / groups.tensor();
  }

  void SearchSingleStages(const Groups& groups, int shard) {
    if (Allowed(problem_.choices.pipeline, 1).empty()) return;
    std::vector<std::int64_t> requests = problem_.choices.micro_batch;
    if (requests.empty()) requests = {0};
    Exchanges exchanges(problem_, groups, shard);
    for (const int data : Allowed(problem_.choices.data, Places(groups)))
      for (const Recompute recompute : problem_.choices.recompute)
        for (const std::int64_t requested : requests)
          SingleStageSearch(problem_, groups, exchanges, data, shard, recompute, requested, best_)
              .Run();
  }

  void SearchPipelines(const Groups& groups, int shard, std::size_t most_labels) {
    Exchanges exchanges(problem_, groups, shard);
    const int most_stages = std::min(Places(groups), static_cast<int>(problem_.layers.size()));
    for (const Recompute recompute : problem_.choices.recompute)
      for (const std::int64_t micro_batch : PipelineMicroBatches(problem_)) {
        const StageTimes times(problem_, groups, recompute, static_cast<double>(micro_batch));
        for (const int stages : Allowed(problem_.choices.pipeline, most_stages))
          for (const int data : Allowed(problem_.choices.data, Places(groups) / stages))
            if (stages > 1)
              PipelineSearch(problem_, groups, times, exchanges,
                             {stages, data, shard, recompute, micro_batch}, best_)
                  .Run(most_labels);
      }
  }

  const PlanProblem& problem_;
  std::optional<Best> best_;
};

}  // namespace

std::optional<Best> FindBest(const PlanProblem& problem) { return Search(problem).Run(); }

}  // namespace adaptive_train::oracle
