// How the planner's time and memory grow with the cluster: one line for each size.
//
// usage: planner_scale [DEVICES ...]      default: 64 128 256 512 1024 2048 4096
// Nodes of 8 devices of 3 kinds under switches of 16 nodes, links uneven; a model of 96 layers.
// Columns: devices, nodes, CPU seconds (the planner has one thread), peak resident MiB, and in
// seconds the predicted step, the best comparison's, the lower bound.
#include <fmt/format.h>
#include <sys/resource.h>

#include <algorithm>
#include <cstdlib>
#include <ctime>
#include <random>
#include <string>
#include <vector>

#include "launcher/planner/comparison.h"
#include "launcher/planner/layout.h"
#include "launcher/planner/search.h"

namespace adaptive_train {
namespace {

constexpr int kNodeDevices = 8, kSwitchNodes = 16, kBlocks = 94;
constexpr double kHidden = 4096, kSequence = 2048, kVocabulary = 51200;
constexpr double kGiB = 1 << 30;

class Draws {
 public:
  explicit Draws(std::uint64_t seed) : engine_(seed) {}
  double Between(double low, double high) {
    return low + (high - low) * static_cast<double>(engine_() >> 11) * 0x1p-53;
  }

 private:
  std::mt19937_64 engine_;
};

/// float32 parameters and gradients, two moments; activations of half precision with fused
/// attention.
void AddLayers(PlanProblem& problem) {
  const double boundary = 2 * kSequence * kHidden;
  const auto add = [&](double parameters, double kept, bool block) {
    ProblemLayer layer;
    layer.parameter_bytes = layer.gradient_bytes = 4 * parameters;
    layer.optimizer_bytes = 8 * parameters;
    layer.activation_bytes = {kept, 0.6 * kept, boundary};
    layer.boundary_bytes = boundary;
    layer.block = block;
    layer.whole_work = layer.whole_parameters = block ? 0 : 1;
    layer.forward_sums = {{block ? 2.0 : 1.0, 0}, (block ? 2 : 1) * boundary, 0};
    if (block) layer.backward_sums.fill(layer.forward_sums);
    if (!block) layer.whole_activation_bytes = layer.activation_bytes;
    problem.layers.push_back(layer);
  };
  add(kVocabulary * kHidden, boundary, false);
  for (int l = 0; l < kBlocks; ++l) add(12 * kHidden * kHidden, 17 * boundary, true);
  add(kVocabulary * kHidden, 2 * kSequence * kVocabulary, false);
  problem.layers.back().boundary_bytes = 0;
}

void AddKinds(PlanProblem& problem, Draws& draws) {
  for (const double flops : {400e12, 200e12, 90e12}) {
    DeviceKind kind{fmt::format("{:.0f} TFLOP/s", flops / 1e12), true, {}};
    for (std::size_t l = 0; l < problem.layers.size(); ++l) {
      const bool block = problem.layers[l].block, head = l + 1 == problem.layers.size();
      const double work =
          block ? 24 * kHidden * kHidden * kSequence + 4 * kSequence * kSequence * kHidden
                : (head ? 2 * kHidden * kVocabulary * kSequence : 10 * kHidden * kSequence);
      const double seconds = work / (flops * draws.Between(0.45, 0.5));
      kind.layers.push_back(
          {{2e-5, seconds}, {4e-5, 2 * seconds}, problem.layers[l].parameter_bytes * 7 / 1.5e12});
    }
    problem.kinds.push_back(std::move(kind));
  }
}

PlanProblem ProblemOf(int devices) {
  Draws draws(static_cast<std::uint64_t>(devices));
  PlanProblem problem;
  AddLayers(problem);
  AddKinds(problem, draws);
  const int nodes = (devices + kNodeDevices - 1) / kNodeDevices;
  problem.global_batch = 2 * devices;
  for (int d = 0; d < devices; ++d) {
    const int node = d / kNodeDevices, kind = node % 3;
    problem.devices.push_back({kind, node, (kind == 0 ? 80 : kind == 1 ? 64 : 40) * kGiB, 1});
  }
  problem.links = LinkTable(static_cast<std::size_t>(nodes));
  for (int a = 0; a < nodes; ++a) {
    problem.node_names.push_back(fmt::format("n{}", a + 1));
    for (int b = 0; b < nodes; ++b) {
      const bool near = a / kSwitchNodes == b / kSwitchNodes;
      LinkSpeed& link = problem.links.At(a, b);
      link = {(near ? 4e-6 : 9e-6) * draws.Between(0.9, 1.2),
              (near ? 40e9 : 15e9) * draws.Between(0.6, 1)};
      if (a == b) link = {2e-6, (a % 3 == 0 ? 400e9 : 150e9) * draws.Between(0.9, 1)};
    }
  }
  problem.base_bytes = kGiB;
  problem.rank_bytes[1] = {{kGiB / 8, kGiB / 8, kGiB / 2}, {kGiB / 4, kGiB / 2}};
  problem.choices.tensor = {1, 2, 4, 8};
  problem.choices.recompute = {Recompute::kNone, Recompute::kSelective, Recompute::kFull};
  problem.choices.shard = {0, 1};
  return problem;
}

double PeakMiB() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return static_cast<double>(usage.ru_maxrss) / 1024;
}

/// Of this process: other processes on the machine do not count.
double CpuSeconds() { return static_cast<double>(std::clock()) / CLOCKS_PER_SEC; }

/// True if a sound plan was found that is no worse than the simpler planners'.
bool PlanFor(int devices) {
  const PlanProblem problem = ProblemOf(devices);
  const double begin = CpuSeconds();
  const auto found = FindLayout(problem);
  const double took = CpuSeconds() - begin;
  if (!found) {
    fmt::print(stderr, "{} devices: {}\n", devices, found.error().message);
    return false;
  }
  if (auto sound = CheckLayout(problem, found->layout); !sound) {
    fmt::print(stderr, "{} devices: {}\n", devices, sound.error().message);
    return false;
  }
  double other = 0;
  for (const Comparison& comparison :
       {EvenStatic(problem), DataParallelOnly(problem), GreedyColocation(problem)})
    if (comparison.cost && (other == 0 || comparison.cost->step < other))
      other = comparison.cost->step;
  fmt::print("{:8} {:6} {:8.2f} {:9.0f} {:9.3f} {:11.3f} {:9.3f}\n", devices, problem.links.Nodes(),
             took, PeakMiB(), found->cost.step, other, found->bound);
  return other == 0 || found->cost.step <= other;
}

}  // namespace
}  // namespace adaptive_train

int main(int argc, char** argv) {
  std::vector<int> sizes;
  for (int i = 1; i < argc; ++i) sizes.push_back(std::max(1, std::atoi(argv[i])));
  if (sizes.empty()) sizes = {64, 128, 256, 512, 1024, 2048, 4096};
  fmt::print("# devices nodes  seconds  peak_MiB    step_s  other_step_s   bound_s\n");
  bool good = true;
  for (const int devices : sizes) good = adaptive_train::PlanFor(devices) && good;
  return good ? 0 : 1;
}
