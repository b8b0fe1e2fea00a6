#include "launcher/planner/no_plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <optional>

#include "launcher/planner/asked_cuts.h"
#include "launcher/planner/search.h"
#include "launcher/planner/shapes.h"

namespace adaptive_train {
namespace {

constexpr double kMiB = 1 << 20;
using Reason = std::optional<std::string>;

template <class Value>
Value Least(const std::vector<Value>& choices) {
  return choices.empty() ? Value{1} : *std::min_element(choices.begin(), choices.end());
}

Reason TooManyStages(const PlanProblem& problem) {
  const auto layers = static_cast<int>(problem.layers.size());
  const int stages = Least(problem.choices.pipeline);
  if (stages <= layers) return std::nullopt;
  return fmt::format(
      "parallel.pipeline = {} needs a layer for each stage, the model has {}: "
      "parallel.pipeline = {} or less",
      stages, layers, layers);
}

/// The number of groups of `size` devices on nodes with these numbers of devices.
std::int64_t GroupsOf(const std::map<int, int>& on_node, int size) {
  std::int64_t groups = 0;
  for (const auto& [node, count] : on_node) groups += count / size;
  return groups;
}

/// The nearest request for so many groups of tensor ranks: fewer replicas, or fewer stages.
std::string FewerPlaces(const PlanProblem& problem, std::int64_t groups) {
  const std::int64_t data = Least(problem.choices.data), stages = Least(problem.choices.pipeline);
  std::vector<std::string> fewer;
  if (groups >= stages && data > groups / stages)
    fewer.push_back(fmt::format("parallel.data = {}", groups / stages));
  if (groups >= data && stages > groups / data)
    fewer.push_back(fmt::format("parallel.pipeline = {}", groups / data));
  if (fewer.empty()) return fmt::format("{} devices or less", problem.devices.size());
  const bool by_hand = !problem.choices.cut.empty();
  return fmt::format("{} or less{}", fmt::join(fewer, ", or "),
                     by_hand ? ", with a parallel.layout of so many stages" : "");
}

Reason TooFewDevices(const PlanProblem& problem) {
  const auto devices = static_cast<int>(problem.devices.size());
  const int tensor = Least(problem.choices.tensor);
  std::map<int, int> on_node;
  for (const ProblemDevice& device : problem.devices) ++on_node[device.node];
  int fullest = 0;
  for (const auto& [node, count] : on_node) fullest = std::max(fullest, count);
  const std::int64_t groups = GroupsOf(on_node, tensor);
  const std::int64_t places =
      std::int64_t{Least(problem.choices.pipeline)} * Least(problem.choices.data);
  if (groups >= places) return std::nullopt;
  int possible = tensor;
  while (possible > 1 && GroupsOf(on_node, possible) < places) --possible;
  if (tensor > 1 && devices >= places)
    return fmt::format(
        "parallel.tensor = {} for {} group{} of devices: {} devices of which {} are on one node at "
        "most make {}: parallel.tensor = {}{}",
        tensor, places, places == 1 ? "" : "s", devices, fullest, groups, possible,
        possible > 1 ? " or less" : "");
  return fmt::format(
      "parallel.data x parallel.tensor x parallel.pipeline = {} x {} x {} needs {} "
      "devices, there are {}: {}",
      Least(problem.choices.data), tensor, Least(problem.choices.pipeline), places * tensor,
      devices, FewerPlaces(problem, groups));
}

/// The multiples of `unit` next to the batch, at least `least`.
std::string NearestBatches(std::int64_t batch, std::int64_t unit, std::int64_t least) {
  const std::int64_t below = batch / unit * unit, above = below + unit;
  if (below >= least) return fmt::format("{} or {}", below, above);
  return fmt::format("{}", std::max(above, least));
}

Reason BatchDoesNotDivide(const PlanProblem& problem) {
  const std::int64_t batch = problem.global_batch;
  const int data = Least(problem.choices.data), stages = Least(problem.choices.pipeline);
  if (data > batch)
    return fmt::format(
        "parallel.data = {} needs a sample for each replica, global_batch is {}: "
        "global_batch {} or more, or parallel.data {} or less",
        data, batch, data, batch);
  if (problem.choices.micro_batch.empty()) return std::nullopt;
  if (!problem.InMicroBatches(stages, problem.choices.micro_batch.front())) return std::nullopt;
  const auto sizes = PipelineMicroBatches(problem);
  const std::int64_t b = Least(problem.choices.micro_batch);
  if (sizes.empty())
    return fmt::format(
        "a pipeline needs a micro_batch that divides global_batch, {} does not "
        "divide {}: global_batch {}",
        b, batch, NearestBatches(batch, b, b * data));
  if (sizes.front() * data > batch)
    return fmt::format(
        "{} replicas need a micro-batch of {} each, global_batch is {}: "
        "global_batch {} or more",
        data, sizes.front(), batch, data * sizes.front());
  return std::nullopt;
}

/// Names missing links, if the problem had a plan with them.
Reason Disconnected(const PlanProblem& problem) {
  PlanProblem linked = problem;
  int missing = 0, from = 0, to = 0;
  const auto nodes = static_cast<int>(problem.links.Nodes());
  for (int a = 0; a < nodes; ++a) {
    for (int b = 0; b < nodes; ++b) {
      if (problem.links.At(a, b).bytes_per_second > 0) continue;
      linked.links.At(a, b).bytes_per_second = 1;
      if (missing++ == 0) from = a, to = b;
    }
  }
  if (missing == 0 || !FindAnyLayout(linked)) return std::nullopt;
  const auto name = [&](int node) {
    const auto index = static_cast<std::size_t>(node);
    return index < problem.node_names.size() ? problem.node_names[index]
                                             : fmt::format("node {}", node);
  };
  return fmt::format(
      "{} cannot reach {}{}, and every plan needs such a link: connect them, or ask "
      "for fewer devices",
      name(from), name(to), missing > 1 ? fmt::format(" (and {} more pairs)", missing - 1) : "");
}

/// The plan that the problem would have if devices had `factor` times their memory.
std::optional<Layout> WithMemory(PlanProblem problem, double factor) {
  for (ProblemDevice& device : problem.devices) device.memory_bytes *= factor;
  return FindAnyLayout(problem);
}

/// For cuts that are asked for: the nearest ones of as many stages that fit. Empty if there are none.
std::string NearestLayout(PlanProblem problem) {
  const std::vector<int> asked = problem.choices.cut;
  problem.choices.cut.clear();
  const auto free = FindAnyLayout(problem);
  if (!free) return "";
  // The search has one chunk for each stage.
  if (free->cut.size() != asked.size())
    return fmt::format("parallel.layout = \"auto\" ({})", WordsOf(*free));
  return LayoutSetting(NearestCuts(asked, free->cut, [&](const std::vector<int>& cut) {
    problem.choices.cut = cut;
    return FindAnyLayout(problem).has_value();
  }));
}

/// Changes of the request that would allow a plan, in words.
std::vector<std::string> Remedies(const PlanProblem& problem) {
  std::vector<std::string> words;
  const auto offer = [&](const std::string& what, auto change) {
    PlanProblem other = problem;
    change(other.choices);
    if (auto layout = FindAnyLayout(other))
      words.push_back(fmt::format("{} ({})", what, WordsOf(*layout)));
  };
  const Choices& asked = problem.choices;
  const bool by_hand = !asked.cut.empty();
  if (by_hand)
    if (std::string layout = NearestLayout(problem); !layout.empty()) words.push_back(layout);
  const auto lacks = [](const auto& list, auto value) {
    return std::find(list.begin(), list.end(), value) == list.end();
  };
  if (lacks(asked.recompute, Recompute::kFull))
    offer("train.recompute = full", [](Choices& c) { c.recompute = {Recompute::kFull}; });
  if (lacks(asked.shard, 2)) offer("parallel.shard = 2", [](Choices& c) { c.shard = {2}; });
  if (!asked.micro_batch.empty() && lacks(asked.micro_batch, std::int64_t{1}))
    offer("train.micro_batch = 1", [](Choices& c) { c.micro_batch = {1}; });
  if (!asked.pipeline.empty())
    offer(by_hand ? "parallel.layout and parallel.pipeline = auto" : "parallel.pipeline = auto",
          [](Choices& c) {
            c.pipeline.clear();
            c.cut.clear();
          });
  if (!asked.data.empty()) offer("parallel.data = auto", [](Choices& c) { c.data.clear(); });
  if (words.empty())
    offer("recompute full and shard 2 with any pipeline", [](Choices& c) {
      c.recompute = {Recompute::kFull};
      c.shard = {2};
      c.pipeline.clear();
      c.cut.clear();
      c.data.clear();
      c.micro_batch.clear();
    });
  return words;
}

std::string TooLittleMemory(const PlanProblem& problem) {
  double too_little = 1, enough = 2;
  constexpr double kHopeless = 1 << 20;
  while (enough < kHopeless && !WithMemory(problem, enough)) too_little = enough, enough *= 2;
  if (enough >= kHopeless) return "no arrangement of these devices fits the request's choices";
  constexpr int kHalvings = 5;
  for (int i = 0; i < kHalvings; ++i) {
    const double middle = (too_little + enough) / 2;
    (WithMemory(problem, middle) ? enough : too_little) = middle;
  }
  const Layout layout = *WithMemory(problem, enough);
  const auto bytes = MemoryOf(problem, layout);
  double need = 0, limit = 1;  // of the device that lacks most
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    const double own =
        kMemoryShare * problem.devices[static_cast<std::size_t>(layout.devices[i])].memory_bytes;
    if (need / limit < bytes[i] / own) need = bytes[i], limit = own;
  }
  std::string text = fmt::format(
      "memory: {} comes nearest and needs {:.1f} MiB on a device of which {:.1f} MiB may be used "
      "({:.0f} % of it)",
      WordsOf(layout), need / kMiB, limit / kMiB, 100 * kMemoryShare);
  const auto remedies = Remedies(problem);
  if (remedies.empty())
    return text + "; devices with about that much memory, or more of them, would do";
  return fmt::format("{}; it would fit with {}", text, fmt::join(remedies, ", or "));
}

}  // namespace

std::optional<Error> WhyRefused(const PlanProblem& problem) {
  for (auto* reason : {&TooManyStages, &TooFewDevices, &BatchDoesNotDivide})
    if (auto words = reason(problem))
      return Error{"no feasible plan: " + *words, ExitCode::kNoPlan};
  return std::nullopt;
}

Error WhyNoPlan(const PlanProblem& problem) {
  if (auto refused = WhyRefused(problem)) return *refused;
  const Reason link = Disconnected(problem);
  return {"no feasible plan: " + (link ? *link : TooLittleMemory(problem)), ExitCode::kNoPlan};
}

}  // namespace adaptive_train
