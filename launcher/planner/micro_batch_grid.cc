#include "launcher/planner/micro_batch_grid.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <optional>
#include <set>

#include "launcher/planner/layout.h"
#include "launcher/planner/stage_schedule.h"

namespace adaptive_train {
namespace {

constexpr std::size_t kMostPoints = 12;
/// A gain too small to measure does not justify another choice.
constexpr double kNoise = 1.01;

std::size_t Index(int i) { return static_cast<std::size_t>(i); }

std::int64_t MicroBatchOf(const Layout& layout) {
  std::int64_t most = 0;
  for (const ReplicaShare& share : layout.shares) most = std::max(most, share.micro_batch);
  return most;
}

std::int64_t MicroBatchesOf(const Layout& layout) {
  std::int64_t most = 0;
  for (const ReplicaShare& share : layout.shares) most = std::max(most, share.MicroBatches());
  return most;
}

/// Sizes to try: of pipelines divisors of the batch, otherwise what equal parts of the largest share
/// have; those nearest to the layout's own, by their ratio to it.
std::vector<std::int64_t> SizesAround(const PlanProblem& problem, const Layout& layout) {
  std::int64_t all = problem.global_batch;
  if (layout.Stages() == 1) {
    all = 0;
    for (const ReplicaShare& share : layout.shares) all = std::max(all, share.samples);
  }
  std::set<std::int64_t> sizes{MicroBatchOf(layout)};
  for (std::int64_t count = 1; count * count <= all; ++count) {
    if (layout.Stages() > 1 && all % count != 0) continue;
    sizes.insert((all + count - 1) / count);
    sizes.insert(count);
  }
  std::vector<std::int64_t> nearest(sizes.begin(), sizes.end());
  const auto apart = [own = MicroBatchOf(layout)](std::int64_t size) {
    return std::abs(std::log(static_cast<double>(size) / static_cast<double>(own)));
  };
  std::stable_sort(nearest.begin(), nearest.end(),
                   [&](std::int64_t a, std::int64_t b) { return apart(a) < apart(b); });
  nearest.resize(std::min(nearest.size(), kMostPoints));
  return nearest;
}

/// Shares of a pipeline's replicas in whole micro-batches: the nearest to those that they have, at
/// least one each. None if there are too few.
std::optional<std::vector<ReplicaShare>> WholeShares(const std::vector<ReplicaShare>& shares,
                                                     std::int64_t all, std::int64_t micro_batch) {
  if (std::ssize(shares) > all) return std::nullopt;
  std::vector<std::int64_t> counts;
  std::vector<double> lacks;
  for (const ReplicaShare& share : shares) {
    counts.push_back(std::max<std::int64_t>(1, share.samples / micro_batch));
    lacks.push_back(static_cast<double>(share.samples) / static_cast<double>(micro_batch) -
                    static_cast<double>(counts.back()));
  }
  std::int64_t left = all - std::accumulate(counts.begin(), counts.end(), std::int64_t{0});
  for (; left != 0; left += left > 0 ? -1 : 1) {
    std::size_t at = 0;
    for (std::size_t d = 1; d < counts.size(); ++d) {
      const bool better = left > 0 ? lacks[d] > lacks[at]
                                   : counts[d] > 1 && (counts[at] == 1 || lacks[d] < lacks[at]);
      if (better) at = d;
    }
    counts[at] += left > 0 ? 1 : -1;
    lacks[at] -= left > 0 ? 1 : -1;
  }
  std::vector<ReplicaShare> whole;
  for (const std::int64_t count : counts) whole.push_back({count * micro_batch, micro_batch});
  return whole;
}

std::optional<Layout> WithMicroBatch(const PlanProblem& problem, Layout layout,
                                     std::int64_t micro_batch) {
  if (layout.Stages() > 1) {
    auto shares = WholeShares(layout.shares, problem.global_batch / micro_batch, micro_batch);
    if (!shares) return std::nullopt;
    layout.shares = std::move(*shares);
    return layout;
  }
  for (ReplicaShare& share : layout.shares) {
    const std::int64_t batches = (share.samples + micro_batch - 1) / micro_batch;
    share.micro_batch = (share.samples + batches - 1) / batches;
  }
  return layout;
}

bool HasOrder(const Layout& layout) {
  if (layout.IsPlain() || !layout.listed.empty()) return true;
  return std::all_of(layout.shares.begin(), layout.shares.end(), [&](const ReplicaShare& share) {
    const auto micro_batches = static_cast<int>(share.MicroBatches());
    if (WeightVersionsOf(layout.schedule) > 1 && micro_batches < layout.Stages()) return false;
    return ComputeOrder(layout.schedule, {layout.Stages(), layout.interleave, micro_batches})
        .has_value();
  });
}

/// A list schedule is made for its number of micro-batches.
bool ListAgain(const PlanProblem& problem, Layout& layout) {
  if (layout.listed.empty()) return true;
  Layout plain = layout;
  plain.listed.clear();
  std::vector<std::string> words;
  auto listed = WithSchedule(problem, plain, {{}, {}, true}, words);
  if (!listed) return false;
  layout = std::move(*listed);
  return true;
}

double FullestShare(const PlanProblem& problem, const Layout& layout) {
  const std::vector<double> bytes = MemoryOf(problem, layout);
  double most = 0;
  for (std::size_t i = 0; i < bytes.size(); ++i)
    most = std::max(most, bytes[i] / problem.devices[Index(layout.devices[i])].memory_bytes);
  return most;
}

GridPoint PointOf(const PlanProblem& problem, Layout layout) {
  GridPoint point;
  point.micro_batch = MicroBatchOf(layout);
  point.micro_batches = MicroBatchesOf(layout);
  point.step_seconds = CostOf(problem, layout).step;
  point.memory_share = FullestShare(problem, layout);
  const auto& wanted = problem.choices.micro_batch;
  if (point.memory_share > kMemoryShare)
    point.why_not = fmt::format("more than {:.0f} % of a device's memory", 100 * kMemoryShare);
  else if (!wanted.empty() &&
           std::find(wanted.begin(), wanted.end(), point.micro_batch) == wanted.end())
    point.why_not = "another micro-batch is asked for";
  else if (const auto checked = CheckLayout(problem, layout); !checked)
    point.why_not = checked.error().message;
  point.is_allowed = point.why_not.empty();
  point.layout = std::move(layout);
  return point;
}

}  // namespace

std::vector<GridPoint> MicroBatchGrid(const PlanProblem& problem, const Layout& layout) {
  std::vector<GridPoint> grid;
  for (const std::int64_t size : SizesAround(problem, layout)) {
    const bool own = size == MicroBatchOf(layout);
    std::optional<Layout> tried = own ? layout : WithMicroBatch(problem, layout, size);
    if (!tried) continue;
    const bool has_order = HasOrder(*tried);
    if (!own && (!has_order || !ListAgain(problem, *tried))) continue;
    GridPoint point = PointOf(problem, std::move(*tried));
    if (own) {  // the request's micro-batch may have been more than a share
      point.is_allowed = has_order;
      point.why_not = has_order ? "" : "too few for the schedule";
    }
    grid.push_back(std::move(point));
  }
  std::sort(grid.begin(), grid.end(), [](const GridPoint& a, const GridPoint& b) {
    return std::pair(a.micro_batches, -a.micro_batch) < std::pair(b.micro_batches, -b.micro_batch);
  });
  return grid;
}

std::size_t ChosenPoint(const std::vector<GridPoint>& grid, const Layout& layout) {
  std::size_t own = 0, fastest = 0;
  for (std::size_t i = 0; i < grid.size(); ++i)
    if (grid[i].micro_batch == MicroBatchOf(layout) &&
        grid[i].micro_batches == MicroBatchesOf(layout))
      own = i;
  fastest = own;
  for (std::size_t i = 0; i < grid.size(); ++i)
    if (grid[i].is_allowed &&
        (!grid[fastest].is_allowed || grid[i].step_seconds < grid[fastest].step_seconds))
      fastest = i;
  const bool is_worth_it = grid[fastest].step_seconds * kNoise < grid[own].step_seconds;
  return is_worth_it || !grid[own].is_allowed ? fastest : own;
}

std::string DescribeGrid(const std::vector<GridPoint>& grid, std::size_t chosen, bool timed) {
  std::string out = "micro-batches of a step (M) at this global batch, on the same stages:\n";
  for (std::size_t i = 0; i < grid.size(); ++i) {
    const GridPoint& point = grid[i];
    const double slower = point.step_seconds / grid[chosen].step_seconds - 1;
    std::string verdict = point.why_not;
    if (i == chosen)
      verdict = "chosen";
    else if (point.is_allowed)
      verdict = timed ? fmt::format("{:+.1f} %", 100 * slower) : "not preferred";
    const std::string seconds = timed ? fmt::format("  {:>9.4f} s", point.step_seconds) : "";
    out += fmt::format("  M {:>5} of {:>4} sequence{}{}  memory {:>3.0f} %  {}\n",
                       point.micro_batches, point.micro_batch, point.micro_batch == 1 ? " " : "s",
                       seconds, 100 * point.memory_share, verdict);
  }
  return out;
}

}  // namespace adaptive_train
