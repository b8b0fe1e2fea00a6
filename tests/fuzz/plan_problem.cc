// The planner under problems that nobody should pose: every number and list of one may be anything.
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>

#include "launcher/planner/layout.h"
#include "launcher/planner/search.h"
#include "tests/fuzz/fuzz.h"
#include "tests/oracle/judge.h"
#include "tests/oracle/random_problem.h"

namespace adaptive_train::fuzz {
namespace {

constexpr std::size_t kMostLayers = 10000, kMostDevices = 200;

/// A sound problem and changes to it, as the bytes of the input say; after its end all are 0.
class Spoiler {
 public:
  explicit Spoiler(std::string_view input) : input_(input) {}

  PlanProblem Spoil() {
    const unsigned seed = Byte();
    problem_ = seed % 2 == 0 ? oracle::TinyProblem(seed) : oracle::SmallProblem(seed);
    while (at_ < input_.size()) Change();
    return problem_;
  }

 private:
  unsigned Byte() { return at_ < input_.size() ? static_cast<unsigned char>(input_[at_++]) : 0; }
  template <typename List>
  auto* AnyOf(List& list) {
    const unsigned index = Byte();
    return list.empty() ? nullptr : &list[index % list.size()];
  }

  double Number(double usual) {
    constexpr double kInfinity = std::numeric_limits<double>::infinity();
    constexpr double kEdges[] = {0,          -0.0,   -1,       1e-300, 1e300, kInfinity,
                                 -kInfinity, 5e-324, 0x1p1023, 1,      -1e-9, std::nan("")};
    const unsigned choice = Byte();
    if (choice >= 64) return usual * static_cast<double>(choice) / 128;
    return kEdges[choice % std::size(kEdges)];
  }
  std::int64_t Whole() {
    constexpr std::int64_t kEdges[] = {0, -1, INT64_MAX, INT64_MIN, INT32_MAX, 1 << 20, 4096, 97};
    const unsigned choice = Byte();
    return choice < 64 ? kEdges[choice % std::size(kEdges)] : choice % 13;
  }

  void Change() {
    switch (Byte() % 12) {
      case 0:
        problem_.global_batch = Whole();
        break;
      case 1:
        if (ProblemLayer* layer = AnyOf(problem_.layers)) ChangeLayer(*layer);
        break;
      case 2:
        if (DeviceKind* kind = AnyOf(problem_.kinds)) ChangeKind(*kind);
        break;
      case 3:
        if (ProblemDevice* device = AnyOf(problem_.devices)) ChangeDevice(*device);
        break;
      case 4:
      case 5:
        ChangeLink();
        break;
      case 6:
        ChangeChoices();
        break;
      case 7:
        ChangeBytes();
        break;
      case 8:
        MoreLayers();
        break;
      case 9:
        while (problem_.devices.size() * 2 <= kMostDevices && !problem_.devices.empty() &&
               Byte() % 2 == 0)
          problem_.devices.insert(
              problem_.devices.end(), problem_.devices.begin(),
              problem_.devices.begin() + static_cast<std::ptrdiff_t>(problem_.devices.size()));
        break;
      case 10:
        Shorten();
        break;
      default:
        problem_.tied = !problem_.tied;
    }
  }

  void ChangeLayer(ProblemLayer& layer) {
    double* const numbers[] = {&layer.parameter_bytes,
                               &layer.gradient_bytes,
                               &layer.optimizer_bytes,
                               &layer.boundary_bytes,
                               &layer.compressed_bytes,
                               &layer.compression_s,
                               &layer.activation_bytes[0],
                               &layer.activation_bytes[2],
                               &layer.whole_parameters,
                               &layer.whole_work,
                               &layer.forward_sums.bytes,
                               &layer.forward_sums.count.fixed,
                               &layer.backward_sums[0].count.per_sample};
    const unsigned choice = Byte();
    if (choice == 255) layer.block = !layer.block;
    double& number = *numbers[choice % std::size(numbers)];
    number = Number(number);
  }

  void ChangeKind(DeviceKind& kind) {
    LayerSeconds* layer = AnyOf(kind.layers);
    if (!layer) return;
    double* const numbers[] = {&layer->forward.fixed,
                               &layer->forward.per_sample,
                               &layer->backward.fixed,
                               &layer->backward.per_sample,
                               &layer->update,
                               &layer->weight_gradients.fixed,
                               &layer->weight_gradients.per_sample};
    double& number = *numbers[Byte() % std::size(numbers)];
    number = Number(number);
  }

  void ChangeDevice(ProblemDevice& device) {
    switch (Byte() % 4) {
      case 0:
        device.kind = static_cast<int>(Whole());
        break;
      case 1:
        device.node = static_cast<int>(Whole());
        break;
      case 2:
        device.memory_bytes = Number(device.memory_bytes);
        break;
      default:
        device.standing = Number(device.standing);
    }
  }

  void ChangeLink() {
    const auto nodes = static_cast<unsigned>(problem_.links.Nodes());
    if (nodes == 0) return;
    const unsigned from = Byte() % nodes, to = Byte() % nodes;
    LinkSpeed& link = problem_.links.At(static_cast<int>(from), static_cast<int>(to));
    double& number = Byte() % 2 == 0 ? link.latency_s : link.bytes_per_second;
    number = Number(number);
  }

  void ChangeChoices() {
    Choices& choices = problem_.choices;
    std::vector<int>* const lists[] = {&choices.data, &choices.tensor, &choices.pipeline,
                                       &choices.shard};
    const unsigned choice = Byte();
    if (choice % 6 == 4) {
      choices.micro_batch.push_back(Whole());
    } else if (choice % 6 == 5) {
      choices.recompute.push_back(static_cast<Recompute>(choice > 250 ? 77 : Byte() % 3));
    } else if (choice > 200) {
      lists[choice % 4]->clear();
    } else {
      lists[choice % 4]->push_back(static_cast<int>(Whole()));
    }
  }

  void ChangeBytes() {
    RankBytes& rank = problem_.rank_bytes[1];
    double* const numbers[] = {&problem_.tied_bytes,         &problem_.base_bytes,
                               &rank.workspace[0],           &rank.workspace[1],
                               &problem_.recompute_share[0], &problem_.recompute_share[1],
                               &problem_.snapshot_share,     &problem_.feedback_copies};
    const unsigned choice = Byte();
    double* number = numbers[choice % std::size(numbers)];
    if (choice > 200) number = AnyOf(rank.scratch);
    if (choice == 200) problem_.compress_all = !problem_.compress_all;
    if (number) *number = Number(*number);
  }

  /// Blocks in the middle again and again, in all kinds alike.
  void MoreLayers() {
    const std::size_t middle = problem_.layers.size() / 2;
    if (problem_.layers.empty()) return;
    const auto wanted = static_cast<std::size_t>(Byte() == 7 ? kMostLayers : Byte());
    const auto grow = [&](auto& list) {
      if (list.size() <= middle || list.size() >= wanted) return;
      const auto copied = list[middle];
      list.insert(list.begin() + static_cast<std::ptrdiff_t>(middle), wanted - list.size(), copied);
    };
    grow(problem_.layers);
    for (DeviceKind& kind : problem_.kinds) grow(kind.layers);
  }

  void Shorten() {
    switch (Byte() % 7) {
      case 0:
        problem_.layers.resize(problem_.layers.size() / 2);
        break;
      case 1:
        problem_.kinds.resize(problem_.kinds.size() / 2);
        break;
      case 2:
        problem_.devices.resize(problem_.devices.size() / 2);
        break;
      case 3:
        problem_.links = LinkTable(Byte() % 9, {1e-4, 1e8});
        break;
      case 4:
        problem_.node_names.clear();
        break;
      case 5:
        problem_.rank_bytes[1].scratch.resize(problem_.rank_bytes[1].scratch.size() / 2);
        break;
      default:
        if (DeviceKind* kind = AnyOf(problem_.kinds)) kind->layers.resize(kind->layers.size() / 2);
    }
  }

  std::string_view input_;
  std::size_t at_ = 0;
  PlanProblem problem_;
};

}  // namespace

/// A refusal, or a layout that is sound, costs what the judge says and is not below the bound.
void FuzzOne(std::string_view input) {
  const PlanProblem problem = Spoiler(input).Spoil();
  if (!CheckProblem(problem)) return;
  const Result<FoundLayout> found = FindLayout(problem);
  if (!found) return;
  Require(CheckLayout(problem, found->layout).has_value());
  const double step = found->cost.step;
  Require(std::isfinite(step) && found->bound <= step * (1 + 1e-9));
  Require(std::abs(oracle::Judge(problem, found->layout).step - step) <= 1e-6 * step);
}

std::vector<std::string> FuzzSeeds() {
  std::vector<std::string> seeds;
  oracle::Draws draws(1);
  for (int seed = 0; seed < 60; ++seed) {
    std::string bytes(1, static_cast<char>(seed));
    for (int changes = seed % 4 * 4; changes > 0; --changes)
      bytes.push_back(static_cast<char>(draws.Integer(0, 255)));
    seeds.push_back(bytes);
  }
  // Very many layers: case 8, then the byte that asks for them.
  seeds.push_back(std::string("\x01\x08\x07", 3));
  seeds.push_back(std::string("\x03\x09\x02\x02\x02\x02\x02\x02", 8));
  return seeds;
}

}  // namespace adaptive_train::fuzz
