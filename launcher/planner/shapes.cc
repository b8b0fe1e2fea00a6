#include "launcher/planner/shapes.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>

namespace adaptive_train {
namespace {

bool Allows(const std::vector<int>& choices, int value) {
  return choices.empty() || std::find(choices.begin(), choices.end(), value) != choices.end();
}

/// Numbers of groups that are at least as fast as the slowest of them.
std::vector<int> FastGroups(const std::vector<Group>& groups) {
  std::map<double, int> of_slowness;
  for (const Group& group : groups) ++of_slowness[group.slowness];
  std::vector<int> counts;
  for (const auto& [slowness, count] : of_slowness)
    counts.push_back(count + (counts.empty() ? 0 : counts.back()));
  return counts;
}

/// Promising numbers of replicas: the smallest for which the largest share of `units` micro-batches
/// drops, and the number that fast groups make.
std::set<int> PromisingReplicas(std::int64_t units, int stages,
                                const std::vector<int>& fast_groups) {
  constexpr std::int64_t kFew = 24;  // for more, one more or less is within a range's width
  std::set<int> numbers;
  for (std::int64_t each = 1; each <= std::min(kFew, units); ++each)
    numbers.insert(static_cast<int>((units + each - 1) / each));
  for (const int count : fast_groups) numbers.insert(count / stages);
  return numbers;
}

/// Ranges of allowed numbers from 1 to `most`, highest first. They are single numbers, or about 8 %
/// wide for many groups; a range has no promising number below its highest.
std::vector<std::pair<int, int>> Ranges(const std::vector<int>& choices, int most, int groups,
                                        const std::set<int>& promising) {
  constexpr int kFew = 64;
  const int exact = groups <= kFew ? kFew : kFew / 4, width = groups <= kFew ? 25 : 12;
  std::vector<std::pair<int, int>> ranges;
  for (int high = most; high >= 1;) {
    int low = high <= exact || !choices.empty() ? high : std::max(exact + 1, high - high / width);
    const auto next = promising.lower_bound(high);
    if (next != promising.begin()) low = std::max(low, *std::prev(next) + 1);
    if (Allows(choices, high)) ranges.push_back({low, high});
    high = low - 1;
  }
  return ranges;
}

template <class Value>
std::vector<Value> Distinct(const std::vector<Value>& values) {
  const std::set<Value> set(values.begin(), values.end());
  return {set.begin(), set.end()};
}

}  // namespace

std::vector<int> TensorChoices(const PlanProblem& problem) {
  return Distinct(problem.choices.tensor);
}

std::vector<std::int64_t> PipelineMicroBatches(const PlanProblem& problem) {
  std::vector<std::int64_t> divisors;
  const std::int64_t batch = problem.global_batch;
  for (std::int64_t d = 1; d * d <= batch; ++d) {
    if (batch % d != 0) continue;
    divisors.push_back(d);
    if (d * d != batch) divisors.push_back(batch / d);
  }
  std::sort(divisors.begin(), divisors.end());
  const auto& wanted = problem.choices.micro_batch;
  if (!wanted.empty())
    std::erase_if(divisors, [&](std::int64_t d) {
      return std::find(wanted.begin(), wanted.end(), d) == wanted.end();
    });
  return divisors;
}

std::vector<ShapeRange> AllShapes(const PlanProblem& problem, int tensor,
                                  const std::vector<Group>& groups) {
  std::vector<ShapeRange> all;
  const auto count = static_cast<int>(groups.size());
  const auto fast_groups = FastGroups(groups);
  const auto pipeline = PipelineMicroBatches(problem);
  std::vector<std::int64_t> whole = Distinct(problem.choices.micro_batch);
  if (whole.empty()) whole.push_back(0);
  const int layers = static_cast<int>(problem.layers.size());
  for (int stages = 1; stages <= std::min(layers, count); ++stages) {
    if (!Allows(problem.choices.pipeline, stages)) continue;
    for (const std::int64_t b : stages == 1 ? whole : pipeline) {
      const std::int64_t batches = problem.Shared(stages, b);
      const int most = static_cast<int>(std::min<std::int64_t>(
          {batches, count / stages, problem.choices.MostReplicas(stages, tensor)}));
      for (const auto& [low, high] : Ranges(problem.choices.data, most, count,
                                            PromisingReplicas(batches, stages, fast_groups))) {
        for (Recompute recompute : Distinct(problem.choices.recompute)) {
          for (int shard : Distinct(problem.choices.shard)) {
            // One replica has nothing to shard.
            if (high == 1 && shard != Distinct(problem.choices.shard).front()) continue;
            all.push_back({{stages, high, tensor, b, recompute, shard}, low});
          }
        }
      }
    }
  }
  return all;
}

std::string WordOf(Recompute recompute) {
  switch (recompute) {
    case Recompute::kNone:
      return "none";
    case Recompute::kSelective:
      return "selective";
    case Recompute::kFull:
      return "full";
  }
  return "";
}

std::string WordsOf(const Layout& layout) {
  const auto count = [](int n, const char* what) {
    return fmt::format("{} {}{}", n, what, n == 1 ? "" : "s");
  };
  std::string words = count(layout.Stages(), "stage") + " x " + count(layout.data, "replica");
  if (layout.tensor > 1) words += " x " + count(layout.tensor, "tensor rank");
  std::int64_t micro_batch = 0;
  for (const ReplicaShare& share : layout.shares)
    micro_batch = std::max(micro_batch, share.micro_batch);
  words += fmt::format(", micro-batch {}", micro_batch);
  if (layout.recompute != Recompute::kNone) words += ", recompute " + WordOf(layout.recompute);
  if (layout.shard > 0) words += fmt::format(", shard {}", layout.shard);
  return words;
}

}  // namespace adaptive_train
