#include "launcher/planner/stage_schedule.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "launcher/planner/asked_cuts.h"
#include "launcher/planner/cuts.h"
#include "launcher/planner/layout.h"

namespace adaptive_train {
namespace {

/// More chunks are cut by their targets alone.
constexpr int kMostMovedChunks = 64;
/// Of all replicas, up to which WithFastestSchedule tries others: stages times micro-batches.
constexpr std::int64_t kMostTried = 20'000;
constexpr double kWorthAnotherSchedule = 0.97;

std::size_t Index(int i) { return static_cast<std::size_t>(i); }

/// Of each layer: seconds of one sample, forward and backward, on the layout's first device.
std::vector<double> WorkOf(const PlanProblem& problem, const Layout& layout) {
  const ProblemDevice& device = problem.devices[Index(layout.devices.front())];
  std::vector<double> work;
  for (const LayerSeconds& layer : problem.kinds[Index(device.kind)].layers)
    work.push_back(layer.forward.At(1) + layer.backward.At(1));
  return work;
}

/// Chunk c takes the share of the work that its stage has in `found`, over `interleave`.
std::vector<int> CutByShares(const PlanProblem& problem, const Layout& found, int interleave) {
  const std::vector<double> work = WorkOf(problem, found);
  std::vector<double> shares;
  for (int s = 0; s < found.Stages(); ++s)
    shares.push_back(std::accumulate(work.begin() + found.cut[Index(s)],
                                     work.begin() + found.cut[Index(s) + 1], 0.0) /
                     interleave);
  const int chunks = found.Stages() * interleave, layers = static_cast<int>(work.size());
  std::vector<int> cut{0};
  double target = 0, done = 0;
  for (int c = 0; c + 1 < chunks; ++c) {
    target += shares[Index(c % found.Stages())];
    int end = cut.back();
    const int most = layers - (chunks - 1 - c);
    do {
      done += work[Index(end++)];
    } while (end < most && done + work[Index(end)] / 2 <= target);
    cut.push_back(end);
  }
  cut.push_back(layers);
  return cut;
}

/// Moves single layers across boundaries as long as that makes the step shorter.
void MoveBoundaries(const PlanProblem& problem, Layout& layout) {
  if (layout.Chunks() > kMostMovedChunks) return;
  double best = CostOf(problem, layout).step;
  for (bool moved = true; moved;) {
    moved = false;
    for (int boundary = 1; boundary < layout.Chunks(); ++boundary) {
      for (const int step : {-1, 1}) {
        Layout tried = layout;
        int& cut = tried.cut[Index(boundary)];
        cut += step;
        if (cut <= tried.cut[Index(boundary) - 1] || cut >= tried.cut[Index(boundary) + 1])
          continue;
        const double seconds = CostOf(problem, tried).step;
        if (seconds >= best * (1 - 1e-9)) continue;
        best = seconds;
        layout = std::move(tried);
        moved = true;
      }
    }
  }
}

void CutIntoChunks(const PlanProblem& problem, const Layout& found, Layout& layout) {
  if (!problem.choices.cut.empty()) {
    layout.cut = problem.choices.cut;
    return;
  }
  layout.cut = CutByShares(problem, found, layout.interleave);
  MoveBoundaries(problem, layout);
}

/// What would hold less than `layout`, which is too large: other settings, or for chunks written by
/// hand the nearest ones on the way to even ones that fit on these devices.
std::string WhatHoldsLess(const PlanProblem& problem, const Layout& layout) {
  const bool by_hand = !problem.choices.cut.empty(), chunks = layout.interleave > 1;
  if (!by_hand) return "parallel.schedule = \"1f1b\" and parallel.interleave = 1";
  if (!chunks) return "parallel.schedule = \"1f1b\"";
  Layout other = layout;
  const auto fits = [&](const std::vector<int>& cut) {
    other.cut = cut;
    return CheckLayout(problem, other).has_value();
  };
  PlanProblem free = problem;
  free.choices.cut.clear();
  const std::vector<int> even = FirstCuts(free, layout.Chunks());
  if (!fits(even)) return "parallel.layout = \"auto\"";
  return LayoutSetting(NearestCuts(layout.cut, even, fits));
}

/// Replicas with the same times and micro-batches share one search.
Result<void> MakeLists(const PlanProblem& problem, Layout& layout, std::vector<std::string>& why) {
  std::vector<UnevenPipeline> pipelines;
  double gap = 0;
  std::vector<Schedule> listed;
  for (int replica = 0; replica < layout.data; ++replica) {
    pipelines.push_back(PipelineOf(problem, layout, replica));
    const auto same = std::find_if(pipelines.begin(), pipelines.end(), [&](const auto& other) {
      return other.micro_batches == pipelines.back().micro_batches &&
             other.costs == pipelines.back().costs &&
             other.rank_bytes == pipelines.back().rank_bytes;
    });
    const auto first = static_cast<std::size_t>(same - pipelines.begin());
    if (first < listed.size()) {
      listed.push_back(listed[first]);
      continue;
    }
    auto made = MakeListSchedule(pipelines.back());
    if (!made)
      return Fail("no feasible plan with the list schedule: " + made.error().message,
                  ExitCode::kNoPlan);
    gap = std::max(gap, made->Gap());
    listed.push_back(std::move(made->schedule));
  }
  layout.listed = std::move(listed);
  why.push_back(fmt::format(
      "list schedule, made from the stages' times: at most {:.1f} % above what any order takes",
      100 * gap));
  return {};
}

}  // namespace

int ScheduleRequest::Chunks() const {
  if (interleave) return static_cast<int>(*interleave);
  const bool has_chunks = kind == ScheduleKind::kInterleaved || kind == ScheduleKind::kBreadthFirst;
  return has_chunks ? 2 : 1;
}

ScheduleKind ScheduleRequest::Kind() const {
  if (kind) return *kind;
  return Chunks() > 1 ? ScheduleKind::kInterleaved : ScheduleKind::kOneForwardOneBackward;
}

std::string ScheduleRequest::Name() const { return list ? "list" : NameOf(Kind()); }

Result<Layout> WithSchedule(const PlanProblem& problem, const Layout& found,
                            const ScheduleRequest& request, std::vector<std::string>& why) {
  const bool is_plain =
      request.Chunks() == 1 && request.Name() == NameOf(ScheduleKind::kOneForwardOneBackward);
  if (is_plain) return found;
  const std::string name = request.Name();
  if (found.Stages() == 1) {
    why.push_back(
        fmt::format("one stage: micro-batch after micro-batch, without the {} schedule", name));
    return found;
  }
  const int chunks = found.Stages() * request.Chunks();
  const auto layers = static_cast<int>(problem.layers.size());
  if (chunks > layers)
    return Fail(fmt::format("no feasible plan: {} stages of {} chunks (parallel.interleave) need "
                            "{} layers; the model has {}, embedding and head among them",
                            found.Stages(), request.Chunks(), chunks, layers),
                ExitCode::kNoPlan);
  Layout layout = found;
  layout.schedule = request.Kind();
  layout.interleave = request.Chunks();
  if (request.list)
    if (auto made = MakeLists(problem, layout, why); !made) return tl::unexpected(made.error());
  if (layout.interleave > 1) CutIntoChunks(problem, found, layout);
  if (const auto fits = CheckLayout(problem, layout); !fits)
    return Fail(
        fmt::format("no feasible plan with the {} schedule: {}; less is held with a smaller "
                    "train.micro_batch, or with {}",
                    name, fits.error().message, WhatHoldsLess(problem, layout)),
        ExitCode::kNoPlan);
  const std::string pieces =
      layout.interleave > 1 ? fmt::format(", {} chunks of the model per rank", layout.interleave)
                            : "";
  why.push_back(fmt::format("schedule: {}{}", name, pieces));
  return layout;
}

Layout WithFastestSchedule(const PlanProblem& problem, const Layout& found,
                           std::vector<std::string>& why) {
  std::int64_t size = 0;
  for (const ReplicaShare& share : found.shares) size += found.Stages() * share.MicroBatches();
  if (found.Stages() == 1 || size > kMostTried) return found;
  std::vector<ScheduleRequest> requests;
  if (problem.choices.cut.empty()) requests.push_back({{}, 2, false});
  if (found.recompute == Recompute::kNone) requests.push_back({{}, {}, true});
  const double plain = CostOf(problem, found).step;
  double best = kWorthAnotherSchedule * plain;
  Layout fastest = found;
  std::vector<std::string> said;
  for (const ScheduleRequest& request : requests) {
    std::vector<std::string> words;
    auto tried = WithSchedule(problem, found, request, words);
    if (!tried) continue;  // too few layers or too little memory for it
    const double seconds = CostOf(problem, *tried).step;
    if (seconds >= best) continue;
    words.back() += fmt::format(", {:.1f} % faster than 1f1b", 100 * (1 - seconds / plain));
    best = seconds;
    fastest = std::move(*tried);
    said = std::move(words);
  }
  why.insert(why.end(), said.begin(), said.end());
  return fastest;
}

}  // namespace adaptive_train
