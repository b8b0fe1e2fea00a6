#include "launcher/planner/planner.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>
#include <set>

#include "launcher/planner/all_reduce_choice.h"
#include "launcher/planner/comparison.h"
#include "launcher/planner/layout.h"
#include "launcher/planner/no_plan.h"
#include "launcher/planner/search.h"
#include "launcher/planner/stage_schedule.h"

namespace adaptive_train {
namespace {

/// A layout without pipeline, its replicas reordered: replica d is what replica order[d] was, and
/// the ring follows the new numbers.
Layout Reordered(const Layout& found, const std::vector<int>& order) {
  Layout ordered = found;
  for (int d = 0; d < found.data; ++d) {
    const int was = order[static_cast<std::size_t>(d)];
    ordered.shares[static_cast<std::size_t>(d)] = found.shares[static_cast<std::size_t>(was)];
    for (int t = 0; t < found.tensor; ++t)
      ordered.devices[found.DeviceIndex(0, d, t)] = found.devices[found.DeviceIndex(0, was, t)];
  }
  std::iota(ordered.rings[0].begin(), ordered.rings[0].end(), 0);
  return ordered;
}

/// Among devices of one kind, the first in the cluster's order get the larger shares.
Layout LargestSharesFirst(const PlanProblem& problem, Layout layout) {
  std::map<int, std::vector<int>> alike;
  for (int d = 0; d < layout.data; ++d) {
    const int device = layout.devices[layout.DeviceIndex(0, d, 0)];
    alike[problem.devices[static_cast<std::size_t>(device)].kind].push_back(d);
  }
  const std::vector<ReplicaShare> shares = layout.shares;
  const auto share = [&](int d) -> const ReplicaShare& {
    return shares[static_cast<std::size_t>(d)];
  };
  for (const auto& [kind, replicas] : alike) {
    std::vector<int> order = replicas;
    std::stable_sort(order.begin(), order.end(),
                     [&](int a, int b) { return share(a).samples > share(b).samples; });
    for (std::size_t i = 0; i < order.size(); ++i)
      layout.shares[static_cast<std::size_t>(replicas[i])] = share(order[i]);
  }
  return layout;
}

/// Numbers ranks in the order of the gradients' ring, since the ranks' own ring follows their
/// numbers. The cluster's order is used if it is slower by no more than kNoise; otherwise the ring
/// starts at the cluster's first device.
Layout InRingOrder(const PlanProblem& problem, const Layout& found) {
  if (found.Stages() != 1 || found.data == 1) return found;
  const auto device = [&](int d) { return found.devices[found.DeviceIndex(0, d, 0)]; };
  const auto before = [&](int a, int b) { return device(a) < device(b); };
  std::vector<int> order = found.rings[0];
  std::sort(order.begin(), order.end(), before);
  const Layout plain = Reordered(found, order), tidy = LargestSharesFirst(problem, plain);
  // A gain too small to measure does not justify a surprising order.
  constexpr double kNoise = 1.01;
  const double allowed = kNoise * CostOf(problem, found).step;
  if (CheckLayout(problem, tidy) && CostOf(problem, tidy).step <= allowed) return tidy;
  if (CostOf(problem, plain).step <= allowed) return plain;
  order = found.rings[0];
  std::rotate(order.begin(), std::min_element(order.begin(), order.end(), before), order.end());
  return Reordered(found, order);
}

void AddStages(const Layout& layout, Plan& plan) {
  for (int s = 0; s < layout.Stages(); ++s) {
    StagePlan stage;
    const auto at = static_cast<std::size_t>(s);
    for (int chunk = s; chunk < layout.Chunks(); chunk += layout.Stages())
      stage.chunks.push_back({layout.cut[static_cast<std::size_t>(chunk)],
                              layout.cut[static_cast<std::size_t>(chunk) + 1]});
    if (at < layout.rings.size()) stage.ring = layout.rings[at];
    for (const int l : layout.LayersOf(s)) {
      if (!layout.compressed.empty() && layout.compressed[static_cast<std::size_t>(l)])
        stage.compressed_layers.push_back(l);
    }
    plan.stages.push_back(stage);
  }
}

void AddRanks(const BuiltProblem& built, const Layout& layout, Plan& plan) {
  const std::vector<double> memory = MemoryOf(built.problem, layout);
  for (int s = 0; s < layout.Stages(); ++s) {
    std::int64_t next = 0;
    for (int d = 0; d < layout.data; ++d) {
      const ReplicaShare& share = layout.shares[static_cast<std::size_t>(d)];
      for (int t = 0; t < layout.tensor; ++t) {
        const std::size_t at = layout.DeviceIndex(s, d, t);
        RankPlan rank;
        rank.rank = static_cast<int>(at);
        rank.device = built.devices[static_cast<std::size_t>(layout.devices[at])];
        rank.stage = s;
        rank.replica = d;
        rank.tensor_rank = t;
        rank.first_sample = next;
        rank.samples = share.samples;
        rank.micro_batch = share.micro_batch;
        rank.memory_bytes = static_cast<std::int64_t>(memory[at]);
        plan.memory_bytes = std::max(plan.memory_bytes, rank.memory_bytes);
        plan.ranks.push_back(rank);
      }
      next += share.samples;
    }
  }
}

/// Uses real seconds: a node's bad standing makes its time count more only in the choice.
PlanProblem Trusting(PlanProblem problem) {
  for (ProblemDevice& device : problem.devices) device.standing = 1;
  return problem;
}

bool TrustsAll(const PlanProblem& problem) {
  return std::all_of(problem.devices.begin(), problem.devices.end(),
                     [](const ProblemDevice& device) { return device.standing == 1; });
}

void AddTimes(const BuiltProblem& built, const Layout& layout, double bound, Plan& plan) {
  if (!built.timed) {
    plan.why.push_back("step time not predicted: no speed has been measured on these devices yet");
    return;
  }
  const PlanProblem trusting = Trusting(built.problem);
  const StepCost cost = CostOf(trusting, layout);
  if (!TrustsAll(built.problem)) bound = LowerBound(trusting);
  plan.step_seconds = cost.step;
  plan.parts = {cost.compute, cost.bubble, cost.activations, cost.gradients, cost.update};
  if (!layout.IsPlain()) {  // the bound is of 1F1B
    plan.why.push_back(fmt::format("predicted step: {:.3f} s", cost.step));
    return;
  }
  plan.bound_seconds = bound;
  plan.why.push_back(fmt::format("predicted step: {:.3f} s; no plan can take less than {:.3f} s",
                                 cost.step, bound));
}

/// Why the layout does not use a device. A constraint that forbids it is reported before a failed
/// search.
std::string WhyLeftOut(const BuiltProblem& built, const Layout& layout,
                       const std::vector<bool>& used, double least_bytes, std::size_t device) {
  const ProblemDevice& own = built.problem.devices[device];
  const double usable = kMemoryShare * own.memory_bytes;
  constexpr double kMiB = 1 << 20;
  if (usable < least_bytes)
    return fmt::format(
        ": {:.0f} MiB of its memory may be used, no rank of this plan needs less than {:.0f}",
        usable / kMiB, least_bytes / kMiB);
  int left = 0;  // on its node
  for (std::size_t other = 0; other < used.size(); ++other)
    left += !used[other] && built.problem.devices[other].node == own.node ? 1 : 0;
  if (left < layout.tensor)
    return fmt::format(": {} left over on its node, a group of tensor ranks needs {}", left,
                       layout.tensor);
  if (!built.problem.choices.data.empty())
    return fmt::format(": parallel.data = {} takes no more devices", layout.data);
  const Choices& choices = built.problem.choices;
  if (layout.data == choices.MostReplicas(layout.Stages(), layout.tensor))
    return fmt::format(": at most {} ranks can train together", choices.most_ranks);
  if (own.standing < 1) return ": its node failed lately";
  return built.timed ? ": no plan with it was found that takes less" : "";
}

void SayWhoIsLeftOut(const BuiltProblem& built, const Layout& layout, Plan& plan) {
  std::vector<bool> used(built.devices.size());
  for (const int device : layout.devices) used[static_cast<std::size_t>(device)] = true;
  const std::vector<double> bytes = MemoryOf(built.problem, layout);
  const double least = *std::min_element(bytes.begin(), bytes.end());
  struct Devices {
    int all = 0, idle = 0;
    std::size_t first_idle = 0;
  };
  std::map<std::string, Devices> nodes;
  for (std::size_t d = 0; d < used.size(); ++d) {
    Devices& devices = nodes[built.devices[d].node];
    ++devices.all;
    if (!used[d] && devices.idle++ == 0) devices.first_idle = d;
  }
  constexpr int kNamed = 8;
  int named = 0, more = 0;
  for (const auto& [node, devices] : nodes) {
    if (devices.idle == 0) continue;
    if (++named > kNamed) {
      more += devices.idle;
      continue;
    }
    const bool whole = devices.idle == devices.all;
    const std::string who = whole
                                ? node + " is"
                                : fmt::format("{} of {} devices of {} {}", devices.idle,
                                              devices.all, node, devices.idle == 1 ? "is" : "are");
    plan.why.push_back(who + " left out" +
                       WhyLeftOut(built, layout, used, least, devices.first_idle));
  }
  if (more > 0)
    plan.why.push_back(fmt::format("{} more device{} left out", more, more == 1 ? " is" : "s are"));
}

void SayShares(const Layout& layout, const PlanRequest& request, Plan& plan) {
  if (layout.data < 2) return;
  const auto [low, high] = std::minmax_element(
      layout.shares.begin(), layout.shares.end(),
      [](const ReplicaShare& a, const ReplicaShare& b) { return a.samples < b.samples; });
  if (request.even_shares) {
    plan.why.push_back("equal shares: parallel.shares = even");
  } else if (high->samples - low->samples <= 1) {
    plan.why.push_back("equal shares up to rounding");
  } else {
    plan.why.push_back(fmt::format("shares follow the replicas' speeds: {} to {} sequences",
                                   low->samples, high->samples));
  }
}

/// What a run that keeps its bits in any layout does otherwise.
void SayUnits(Plan& plan) {
  plan.why.push_back(
      fmt::format("gradients are summed micro-batch by micro-batch in a tree, uncompressed, and "
                  "shares are whole micro-batches of {}: train.reproducible = layout",
                  plan.ranks.front().micro_batch));
  if (plan.shard == 2 && plan.data > 1)
    plan.why.push_back(
        "gradients are shared out at the end of a step only, as with parallel.shard = 1: "
        "train.reproducible = layout");
}

/// How stages sum, judged by their ranks' links; reported if not one ring.
void AddAllReduce(const BuiltProblem& built, const Layout& layout, Plan& plan) {
  if (layout.data < 2) return;
  for (int s = 0; s < layout.Stages(); ++s) {
    std::vector<int> nodes;
    for (int d = 0; d < layout.data; ++d) {
      const int device = layout.devices[layout.DeviceIndex(s, d, 0)];
      nodes.push_back(built.problem.devices[static_cast<std::size_t>(device)].node);
    }
    AllReducePlan& choice = plan.stages[static_cast<std::size_t>(s)].all_reduce;
    choice = ChooseAllReduce(built.problem.links, nodes);
    if (!choice.node_first && choice.halving_bytes == 0) continue;
    const std::string halving =
        choice.halving_bytes > choice.doubling_bytes
            ? fmt::format("up to {} by recursive halving, ", choice.halving_bytes)
            : "";
    plan.why.push_back(
        fmt::format("stage {} sums up to {} bytes by recursive doubling, {}what is larger {}", s,
                    choice.doubling_bytes, halving,
                    choice.node_first ? "inside nodes first" : "around one ring"));
  }
}

/// Reports on how many layers the links are slow enough for compression.
void SayCompression(const PlanProblem& problem, const Layout& layout, const PlanRequest& request,
                    Plan& plan) {
  double before = 0, after = 0, seconds = 0;
  std::size_t count = 0;
  for (std::size_t l = 0; l < problem.layers.size(); ++l) {
    const ProblemLayer& layer = problem.layers[l];
    if (layer.compressed_bytes <= 0 || layout.data < 2) return;
    before += layer.gradient_bytes;
    after += layout.compressed[l] ? layer.compressed_bytes : layer.gradient_bytes;
    seconds += layout.compressed[l] ? layer.compression_s : 0;
    count += layout.compressed[l] ? 1 : 0;
  }
  const std::string saving =
      fmt::format("{:.3g} instead of {:.3g} MB to sum, for {:.3g} ms of a device", after / 1e6,
                  before / 1e6, 1e3 * seconds);
  if (request.compression && request.compression->local_steps > 0)
    plan.why.push_back(
        fmt::format("replicas make up to {} steps apart, as asked for: {} in each on the average",
                    request.compression->local_steps, saving));
  else if (problem.compress_all)
    plan.why.push_back("gradients are compressed as asked for: " + saving);
  else if (count == 0)
    plan.why.push_back(
        "compressing gradients gains nothing on these links by what is known: where a step waits "
        "for them all the same, it is tried");
  else
    plan.why.push_back(
        fmt::format("compressing gradients gains on {} of {} layers: {}; the run tries it there",
                    count, problem.layers.size(), saving));
}

Plan PlanOf(const BuiltProblem& built, const FoundLayout& found, const PlanRequest& request) {
  Plan plan;
  plan.global_batch = request.global_batch;
  plan.data = found.layout.data;
  plan.tensor = found.layout.tensor;
  plan.recompute = found.layout.recompute;
  plan.shard = found.layout.shard;
  plan.schedule = found.layout.schedule;
  for (const Schedule& schedule : found.layout.listed) plan.listed.push_back(ToCsv(schedule));
  AddStages(found.layout, plan);
  AddRanks(built, found.layout, plan);
  SayShares(found.layout, request, plan);
  if (request.reproducible)
    SayUnits(plan);
  else
    AddAllReduce(built, found.layout, plan);
  SayCompression(built.problem, found.layout, request, plan);
  SayWhoIsLeftOut(built, found.layout, plan);
  plan.why.insert(plan.why.end(), built.notes.begin(), built.notes.end());
  AddTimes(built, found.layout, found.bound, plan);
  for (const Alternative& other : found.alternatives) {
    plan.alternatives.push_back(other);
    // With a node in bad standing these are not real seconds.
    if (!built.timed || !TrustsAll(built.problem)) plan.alternatives.back().step_seconds.reset();
  }
  return plan;
}

/// The first alternative of this name.
const Alternative* Find(const Plan& plan, const char* name) {
  const auto found = std::find_if(plan.alternatives.begin(), plan.alternatives.end(),
                                  [&](const Alternative& other) { return other.name == name; });
  return found == plan.alternatives.end() ? nullptr : &*found;
}

/// Why the plan has stages or none, by the best plan of the other sort.
void SayStages(const PlanRequest& request, std::size_t devices, Plan& plan) {
  if (!plan.step_seconds || request.even_shares || request.pipeline || devices < 2) return;
  const bool staged = plan.Pipeline() > 1;
  const Alternative* other = Find(plan, staged ? "data parallel only" : "other number of stages");
  if (staged && other != nullptr && !other->step_seconds) {
    plan.why.push_back("in stages: data parallel only is not possible: " + other->what);
  } else if (other != nullptr && other->step_seconds) {
    plan.why.push_back(fmt::format("{}: {:.3g} s a step, {:.3g} s with {}",
                                   staged ? "in stages" : "no pipeline stages", *plan.step_seconds,
                                   *other->step_seconds, other->what));
  } else if (!staged) {
    plan.why.push_back(
        fmt::format("no pipeline stages: {:.3g} s a step, and none that could be faster with them",
                    *plan.step_seconds));
  }
}

/// The layout of a plan in the numbers of a problem. Ranks find their devices by name; several on
/// one device take them in order.
Result<Layout> LayoutOf(const Plan& plan, const BuiltProblem& built) {
  Layout layout;
  layout.data = plan.data;
  layout.tensor = plan.tensor;
  layout.recompute = plan.recompute;
  layout.shard = plan.shard;
  layout.interleave = plan.Chunks();
  layout.schedule = plan.schedule;
  for (int replica = 0; !plan.listed.empty() && replica < plan.data; ++replica)
    layout.listed.push_back(OrderOf(plan, replica));
  layout.compressed.assign(built.problem.layers.size(), false);
  layout.cut.push_back(0);
  for (std::size_t chunk = 0; chunk < static_cast<std::size_t>(plan.Chunks()); ++chunk)
    for (const StagePlan& stage : plan.stages) layout.cut.push_back(stage.chunks[chunk].end_layer);
  for (const StagePlan& stage : plan.stages) {
    layout.rings.push_back(stage.ring);
    for (const int l : stage.compressed_layers) {
      if (static_cast<std::size_t>(l) < layout.compressed.size())
        layout.compressed[static_cast<std::size_t>(l)] = true;
    }
  }
  std::vector<bool> taken(built.devices.size());
  for (const RankPlan& rank : plan.ranks) {
    std::size_t at = 0;
    const auto is = [&](const Device& device) {
      return device.node == rank.device.node && device.kind == rank.device.kind &&
             device.index == rank.device.index;
    };
    while (at < taken.size() && (taken[at] || !is(built.devices[at]))) ++at;
    if (at == taken.size())
      return Fail(
          fmt::format("rank {} of the plan has no device on {}", rank.rank, rank.device.node));
    taken[at] = true;
    layout.devices.push_back(static_cast<int>(at));
    if (rank.stage == 0 && rank.tensor_rank == 0)
      layout.shares.push_back({rank.samples, rank.micro_batch});
  }
  return layout;
}

/// Numbers of replicas that use all devices, limited by whole tensor groups per node.
std::vector<int> ReplicasOnAllDevices(const PlanProblem& problem) {
  std::map<int, int> on_node;
  for (const ProblemDevice& device : problem.devices) ++on_node[device.node];
  std::vector<int> stages = problem.choices.pipeline;
  if (stages.empty()) {
    stages.resize(problem.layers.size());
    std::iota(stages.begin(), stages.end(), 1);
  }
  std::set<int> replicas;
  for (const int tensor : problem.choices.tensor) {
    std::int64_t groups = 0;
    for (const auto& [node, count] : on_node) groups += count / tensor;
    for (const int count : stages)
      replicas.insert(
          static_cast<int>(std::min({groups / count, problem.global_batch,
                                     std::int64_t{problem.choices.MostReplicas(count, tensor)}})));
  }
  replicas.erase(0);
  return {replicas.begin(), replicas.end()};
}

/// If memory is what lacks, adds why the job has less of it than the nodes.
Error WithMemoryNotes(Error error, const Cluster& cluster) {
  if (error.message.find("memory") == std::string::npos) return error;
  for (const std::string& note : MemoryNotes(cluster)) error.message += "; " + note;
  return error;
}

/// Equal samples for every replica, on all devices unless the request gives a number.
Result<FoundLayout> FindEven(PlanProblem problem) {
  if (problem.choices.data.empty()) problem.choices.data = ReplicasOnAllDevices(problem);
  if (problem.choices.data.empty()) return tl::unexpected(WhyNoPlan(problem));
  const Comparison even = EvenStatic(problem);
  if (const auto why = WhyRefused(problem); !even.layout && why) return tl::unexpected(*why);
  if (!even.layout) return Fail("no feasible plan: " + even.what, ExitCode::kNoPlan);
  return FoundLayout{*even.layout, *even.cost, LowerBound(problem), {}};
}

/// What sharded state must promise: it needs more messages.
constexpr double kWorthSharding = 0.97;

Result<FoundLayout> Find(const PlanRequest& request, const PlanProblem& problem,
                         const std::stop_token& stop) {
  return request.even_shares ? FindEven(problem) : FindLayout(problem, stop);
}

/// With parallel.shard = "auto" a run shards its state where memory asks for it: replicas of the
/// whole model do not fit without recomputation, and nothing else is nearly as fast.
Result<FoundLayout> FindAlsoSharded(const PlanRequest& request, BuiltProblem& built,
                                    const std::stop_token& stop) {
  auto found = Find(request, built.problem, stop);
  const bool fits =
      found && (request.even_shares || (found->layout.Stages() == 1 && found->layout.tensor == 1 &&
                                        found->layout.recompute == Recompute::kNone));
  if (fits || request.shard || !request.runnable_only) return found;
  PlanProblem sharded = built.problem;
  sharded.choices.shard = {1, 2};
  auto other = Find(request, sharded, stop);
  if (!other || (found && other->cost.step > kWorthSharding * found->cost.step)) return found;
  if (found)
    other->alternatives.insert(
        other->alternatives.begin(),
        {"nothing sharded", "state whole on every replica", found->cost.step});
  built.notes.push_back(
      fmt::format("shard = {}: {}", other->layout.shard,
                  found ? fmt::format("{:.1f} % faster than what fits without",
                                      100 * (1 - other->cost.step / found->cost.step))
                        : "nothing fits without"));
  return other;
}

}  // namespace

Result<PlannedRun> MakePlan(const Cluster& cluster, const ModelDims& dims,
                            const TrainingFormat& format, const Profile& profile,
                            const PlanRequest& request, const std::stop_token& stop) {
  auto built = BuildProblem(cluster, dims, format, profile, request);
  if (!built) return tl::unexpected(built.error());
  if (auto sound = CheckProblem(built->problem); !sound) return tl::unexpected(sound.error());
  if (!request.cut.empty()) built->notes.push_back("each stage's layers: parallel.layout");
  auto found = FindAlsoSharded(request, *built, stop);
  if (!found) return tl::unexpected(WithMemoryNotes(found.error(), cluster));
  found->layout = InRingOrder(built->problem, found->layout);
  const bool open = request.schedule.IsOpen() && built->timed && !request.even_shares;
  Result<Layout> scheduled =
      open ? WithFastestSchedule(built->problem, found->layout, built->notes)
           : WithSchedule(built->problem, found->layout, request.schedule, built->notes);
  if (!scheduled) return tl::unexpected(WithMemoryNotes(scheduled.error(), cluster));
  if (!scheduled->IsPlain())
    found->alternatives.insert(
        found->alternatives.begin(),
        {"1f1b", "the same ranks, one chunk each", CostOf(built->problem, found->layout).step});
  const bool trusts_all = TrustsAll(built->problem);
  auto grid = MicroBatchGrid(trusts_all ? built->problem : Trusting(built->problem), *scheduled);
  const std::size_t chosen = ChosenPoint(grid, *scheduled);
  found->layout = grid[chosen].layout;
  Plan plan = PlanOf(*built, *found, request);
  for (const Comparison& other : {EvenStatic(built->problem), DataParallelOnly(built->problem),
                                  GreedyColocation(built->problem)}) {
    Alternative alternative{other.name, other.what, std::nullopt};
    if (other.cost && built->timed) alternative.step_seconds = other.cost->step;
    plan.alternatives.push_back(alternative);
  }
  SayStages(request, built->devices.size(), plan);
  return PlannedRun{std::move(plan), std::move(built->problem), std::move(found->layout),
                    std::move(grid), chosen};
}

Result<Plan> PriceAgain(const Plan& plan, const Cluster& cluster, const ModelDims& dims,
                        const TrainingFormat& format, const Profile& profile,
                        const PlanRequest& request) {
  auto built = BuildProblem(cluster, dims, format, profile, request);
  if (!built) return tl::unexpected(built.error());
  if (auto sound = CheckProblem(built->problem); !sound) return tl::unexpected(sound.error());
  auto layout = LayoutOf(plan, *built);
  if (!layout) return tl::unexpected(layout.error());
  Plan priced = plan;
  priced.step_seconds.reset();
  if (!built->timed) return priced;
  const StepCost cost = CostOf(Trusting(built->problem), *layout);
  priced.step_seconds = cost.step;
  priced.parts = {cost.compute, cost.bubble, cost.activations, cost.gradients, cost.update};
  return priced;
}

Result<std::vector<PlaceSeconds>> PlaceSecondsOf(const Plan& plan, const Cluster& cluster,
                                                 const ModelDims& dims,
                                                 const TrainingFormat& format,
                                                 const Profile& profile,
                                                 const PlanRequest& request) {
  auto built = BuildProblem(cluster, dims, format, profile, request);
  if (!built) return tl::unexpected(built.error());
  if (auto sound = CheckProblem(built->problem); !sound) return tl::unexpected(sound.error());
  if (!built->timed) return Fail("no speed has been measured on these devices yet");
  auto layout = LayoutOf(plan, *built);
  if (!layout) return tl::unexpected(layout.error());
  return PlaceSecondsOf(Trusting(built->problem), *layout);
}

}  // namespace adaptive_train
