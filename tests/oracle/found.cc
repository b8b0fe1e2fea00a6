#include "tests/oracle/found.h"

#include <algorithm>

#include "tests/oracle/terms.h"

namespace adaptive_train::oracle {

std::vector<int> Allowed(const std::vector<int>& choices, int most) {
  std::vector<int> allowed;
  for (int value = 1; value <= most; ++value)
    if (choices.empty() || std::find(choices.begin(), choices.end(), value) != choices.end())
      allowed.push_back(value);
  return allowed;
}

std::vector<std::int64_t> PipelineMicroBatches(const PlanProblem& problem) {
  const std::vector<std::int64_t>& choices = problem.choices.micro_batch;
  std::vector<std::int64_t> allowed;
  for (std::int64_t value = 1; value <= problem.global_batch; ++value)
    if (problem.global_batch % value == 0 &&
        (choices.empty() || std::find(choices.begin(), choices.end(), value) != choices.end()))
      allowed.push_back(value);
  return allowed;
}

ReplicaShare SingleStageShare(std::int64_t samples, std::int64_t largest) {
  const std::int64_t micro_batches = (samples + largest - 1) / largest;
  return {samples, (samples + micro_batches - 1) / micro_batches};
}

std::int64_t LargestMicroBatch(const PlanProblem& problem, double memory_bytes, int data,
                               int tensor, int shard, Recompute recompute) {
  const LayerRange all{0, static_cast<int>(problem.layers.size())};
  for (std::int64_t samples = problem.global_batch; samples >= 1; --samples) {
    const MemoryTerms terms =
        MemoryOfStage(problem, all, {data, tensor, shard, 1, recompute, samples});
    if (terms.fixed + terms.in_flight <= kMemoryShare * memory_bytes) return samples;
  }
  return 0;
}

}  // namespace adaptive_train::oracle
