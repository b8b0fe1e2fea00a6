#include "tests/oracle/random_problem.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <string>

namespace adaptive_train::oracle {

double Draws::Uniform(double from, double to) {
  return from + (to - from) * (static_cast<double>(engine_() >> 11) * 0x1p-53);
}

double Draws::LogUniform(double from, double to) {
  return std::exp(Uniform(std::log(from), std::log(to)));
}

int Draws::Integer(int from, int to) {
  return from + static_cast<int>(engine_() % static_cast<std::uint64_t>(to - from + 1));
}

namespace {

struct Transformer {
  int blocks = 4;
  double hidden = 512, sequence = 256, vocabulary = 8192;
};

class Builder {
 public:
  explicit Builder(Draws& draws) : draws_(draws) {}

  /// The model, without times.
  void Layers(const Transformer& model, bool tied) {
    const double vocabulary_bytes = 4 * model.vocabulary * model.hidden;
    const double boundary = 4 * model.sequence * model.hidden;
    problem_.tied = tied;
    problem_.tied_bytes = tied ? vocabulary_bytes : 0;
    Add(vocabulary_bytes + boundary, {boundary, boundary, boundary}, boundary);
    const double kept = draws_.Uniform(10, 18) * boundary;
    for (int block = 0; block < model.blocks; ++block)
      Add(48 * model.hidden * model.hidden, {kept, 0.6 * kept, boundary}, boundary);
    const double logits = 4 * model.sequence * model.vocabulary + boundary;
    Add(tied ? 4 * model.hidden : vocabulary_bytes, {logits, logits, logits}, 0);
    ShareOut(boundary);
    problem_.base_bytes = draws_.Uniform(2e7, 1e8);
    RankBytes& bytes = problem_.rank_bytes[1];
    bytes.workspace = {2 * boundary, 2.5 * boundary, kept};
    for (int samples = 1; samples <= 3; ++samples)
      bytes.scratch.push_back(boundary * (1 + 0.5 * samples));
    RankBytes& two = problem_.rank_bytes[2];  // and more
    for (std::size_t r = 0; r < kRecomputes; ++r) two.workspace[r] = 0.6 * bytes.workspace[r];
    two.scratch = {boundary, 1.25 * boundary};
    const double per_sample = 24 * model.hidden * model.hidden + 4 * model.sequence * model.hidden;
    flops_.assign(problem_.layers.size(), model.sequence * per_sample);
    flops_.front() = 10 * model.sequence * model.hidden;
    flops_.back() = 2 * model.sequence * model.hidden * model.vocabulary;
  }

  void Compression() {
    const double share = draws_.Uniform(0.02, 0.3), speed = draws_.LogUniform(5e8, 1e10);
    for (ProblemLayer& layer : problem_.layers) {
      layer.compressed_bytes = share * layer.gradient_bytes;
      layer.compression_s = layer.gradient_bytes / speed;
    }
    problem_.feedback_copies = 2;
    problem_.compress_all = share < 0.1;  // no draw of its own: seeds mean what they did
  }

  void Kinds(int count) {
    const double slowest = draws_.LogUniform(5e10, 2e11), apart = draws_.LogUniform(1.2, 4);
    const double fixed = draws_.Chance(0.3) ? draws_.Uniform(0.2, 1) : draws_.Uniform(0, 0.1);
    const double state = WholeBytes();
    for (int kind = 0; kind < count; ++kind) {
      const double place = count == 1 ? 0 : static_cast<double>(kind) / (count - 1);
      AddKind(kind, slowest * std::pow(apart, place), fixed);
      memory_.push_back(problem_.base_bytes + state * draws_.LogUniform(0.15, 4));
    }
  }

  /// Places devices of random kinds on `nodes` nodes as `sizes` says.
  void Devices(const std::vector<int>& sizes, bool one_kind_a_node) {
    for (std::size_t node = 0; node < sizes.size(); ++node) {
      problem_.node_names.push_back("n" + std::to_string(node + 1));
      int kind = AnyKind();
      const double standing = draws_.Chance(0.1) ? draws_.Uniform(0.5, 1) : 1;
      for (int i = 0; i < sizes[node]; ++i) {
        if (!one_kind_a_node && draws_.Chance(0.5)) kind = AnyKind();
        problem_.devices.push_back(
            {kind, static_cast<int>(node), memory_[static_cast<std::size_t>(kind)], standing});
      }
    }
    problem_.links = LinkTable(sizes.size());
  }

  /// Bytes per second at which the exchange of all gradients takes as long as the batch on all
  /// devices.
  double BalancedBandwidth() const {
    double speed = 0, gradients = 0;
    for (const ProblemDevice& device : problem_.devices) {
      double sample = 0;
      for (const LayerSeconds& layer : problem_.kinds[static_cast<std::size_t>(device.kind)].layers)
        sample += layer.forward.At(1) + layer.backward.At(1);
      speed += device.standing / sample;
    }
    for (const ProblemLayer& layer : problem_.layers) gradients += layer.gradient_bytes;
    return 2 * gradients * speed / static_cast<double>(problem_.global_batch);
  }

  /// Each pair's own speed between `slowest` and `apart` times that.
  void PairLinks(double slowest, double apart, double latency, bool asymmetric) {
    for (int from = 0; from < Nodes(); ++from)
      for (int to = 0; to <= from; ++to) {
        LinkSpeed link{latency * draws_.LogUniform(1, 4), slowest * draws_.LogUniform(1, apart)};
        if (from == to) {
          link.latency_s /= 20;
          link.bytes_per_second = slowest * apart * draws_.LogUniform(2, 50);
        }
        problem_.links.At(from, to) = problem_.links.At(to, from) = link;
        if (asymmetric && from != to)
          problem_.links.At(to, from).bytes_per_second *= draws_.LogUniform(0.5, 2);
      }
  }

  /// Some pairs of nodes cannot reach each other.
  void LoseLinks(double share) {
    for (int from = 0; from < Nodes(); ++from)
      for (int to = 0; to < from; ++to)
        if (draws_.Chance(share))
          problem_.links.At(from, to).bytes_per_second =
              problem_.links.At(to, from).bytes_per_second = 0;
  }

  /// Nodes of one switch are nearer to each other; measured figures scatter a little.
  void SwitchLinks(double bandwidth, int nodes_a_switch, double oversubscribed) {
    for (int from = 0; from < Nodes(); ++from)
      for (int to = 0; to < Nodes(); ++to) {
        double speed = bandwidth * draws_.Uniform(0.95, 1.05), latency = 3e-5;
        if (from / nodes_a_switch != to / nodes_a_switch) {
          speed /= oversubscribed;
          latency *= 2;
        }
        if (from == to) {
          speed *= 10;
          latency = 5e-6;
        }
        problem_.links.At(from, to) = {latency * draws_.Uniform(0.9, 1.1), speed};
      }
  }

  PlanProblem& problem() { return problem_; }

 private:
  /// How tensor ranks share the layers.
  void ShareOut(double residual) {
    for (ProblemLayer& layer : problem_.layers) {
      layer.block = &layer != &problem_.layers.front() && &layer != &problem_.layers.back();
      if (!layer.block) layer.whole_activation_bytes = layer.activation_bytes;
      layer.whole_parameters = layer.block ? 0.01 : 0.1;
      layer.forward_sums = {{layer.block ? 2.0 : 1.0, 0}, (layer.block ? 2 : 1) * residual, 0};
      if (!layer.block) continue;
      layer.backward_sums.fill(layer.forward_sums);
      layer.backward_sums.back() = {{3, 0}, 3 * residual, 0};
      layer.kv_heads = 2;
      layer.head_sums = {{0.5, 0}, 0.1 * residual, 0};
      layer.kv_head_bytes = {0.2 * residual, 0.2 * residual, 0};
    }
    problem_.layers.front().whole_work = 1;
    problem_.layers.back().whole_work = 0.05;
    problem_.layers.back().forward_sums = {{1, 0.5}, residual, 0.01 * residual};
  }

  void Add(double parameter_bytes, const std::array<double, kRecomputes>& kept, double boundary) {
    ProblemLayer layer;
    layer.parameter_bytes = layer.gradient_bytes = parameter_bytes;
    layer.optimizer_bytes = 2 * parameter_bytes;
    layer.activation_bytes = kept;
    for (std::size_t r = 0; r < kRecomputes; ++r)
      layer.whole_activation_bytes[r] = draws_.Uniform(0, 1) * kept[r];
    layer.boundary_bytes = boundary;
    problem_.layers.push_back(layer);
  }

  void AddKind(int index, double speed, double fixed) {
    DeviceKind kind;
    kind.name = "kind " + std::to_string(index + 1);
    kind.measured = true;
    const double copied_per_second = draws_.LogUniform(5e9, 4e10);
    for (std::size_t layer = 0; layer < problem_.layers.size(); ++layer) {
      const double sample = flops_[layer] / (speed * draws_.Uniform(0.9, 1.1));
      const double back = draws_.Uniform(1.8, 2.2);
      kind.layers.push_back({{fixed * sample, sample},
                             {back * fixed * sample, back * sample},
                             7 * problem_.layers[layer].parameter_bytes / copied_per_second});
    }
    problem_.kinds.push_back(kind);
  }

  double WholeBytes() const {
    double bytes = 0;
    for (const ProblemLayer& layer : problem_.layers)
      bytes += (1 + problem_.snapshot_share) * layer.parameter_bytes + layer.gradient_bytes +
               layer.optimizer_bytes + 2 * layer.activation_bytes[0];
    return bytes;
  }

  int AnyKind() const { return draws_.Integer(0, static_cast<int>(problem_.kinds.size()) - 1); }
  int Nodes() const { return static_cast<int>(problem_.links.Nodes()); }

  Draws& draws_;
  PlanProblem problem_;
  std::vector<double> flops_;   // of one sample's forward; index = layer
  std::vector<double> memory_;  // index = kind
};

std::vector<int> NodeSizes(Draws& draws, int devices, bool several_a_node) {
  std::vector<int> sizes;
  for (int left = devices; left > 0; left -= sizes.back())
    sizes.push_back(several_a_node ? std::min(left, draws.Integer(1, 4)) : 1);
  return sizes;
}

void MemoryChoices(Draws& draws, Choices& choices) {
  if (draws.Chance(0.5))
    choices.recompute = draws.Chance(0.5)
                            ? std::vector{Recompute::kNone, Recompute::kSelective, Recompute::kFull}
                            : std::vector{draws.OneOf({Recompute::kSelective, Recompute::kFull})};
  if (draws.Chance(0.4))
    choices.shard = draws.Chance(0.5) ? std::vector{0, 1, 2} : std::vector{draws.Integer(1, 2)};
}

PlanProblem FewDevices(Draws& draws, int devices, int blocks, int batch) {
  Builder builder(draws);
  builder.problem().global_batch = batch;
  const Transformer model{blocks, draws.OneOf({256.0, 384.0, 512.0, 768.0}),
                          draws.OneOf({128.0, 256.0, 512.0}), draws.OneOf({2048.0, 8192.0})};
  builder.Layers(model, draws.Chance(0.4));
  if (draws.Chance(0.4)) builder.Compression();
  builder.Kinds(draws.Integer(2, 3));
  const bool several_a_node = draws.Chance(0.5);
  builder.Devices(NodeSizes(draws, devices, several_a_node), draws.Chance(0.5));
  builder.PairLinks(builder.BalancedBandwidth() * draws.LogUniform(0.05, 10),
                    draws.LogUniform(1, 20), draws.LogUniform(1e-5, 1e-3), draws.Chance(0.3));
  if (draws.Chance(0.1)) builder.LoseLinks(0.3);
  if (several_a_node && draws.Chance(0.6)) builder.problem().choices.tensor = {1, 2};
  MemoryChoices(draws, builder.problem().choices);
  return builder.problem();
}

}  // namespace

PlanProblem TinyProblem(std::uint64_t seed) {
  Draws draws(seed);
  const int devices = draws.Chance(0.3) ? draws.Integer(1, 3) : draws.Integer(4, 5);
  const int blocks = draws.Integer(0, 4);
  PlanProblem problem = FewDevices(draws, devices, blocks, draws.OneOf({3, 4, 6, 8, 12}));
  for (ProblemDevice& device : problem.devices)
    if (draws.Chance(0.2)) device.memory_bytes *= draws.Uniform(0.3, 1.5);
  if (draws.Chance(0.15)) problem.choices.micro_batch = {draws.Integer(1, 3)};
  if (draws.Chance(0.1)) problem.choices.pipeline = {draws.Integer(1, 3)};
  if (draws.Chance(0.1)) problem.choices.data = {draws.Integer(1, 3)};
  return problem;
}

PlanProblem SmallProblem(std::uint64_t seed) {
  Draws draws(seed + 1000003);
  const int devices = draws.Chance(0.2) ? draws.Integer(2, 5) : draws.Integer(6, 8);
  const int blocks = draws.Integer(2, 8);
  PlanProblem problem = FewDevices(draws, devices, blocks, draws.OneOf({8, 12, 16, 24, 32}));
  if (draws.Chance(0.1)) problem.choices.micro_batch = {draws.Integer(1, 4)};
  return problem;
}

PlanProblem LargeProblem(std::uint64_t seed, int devices) {
  Draws draws(seed + 2000003);
  Builder builder(draws);
  builder.problem().global_batch = devices * draws.OneOf({2, 4, 8});
  const Transformer model{draws.Integer(22, 46), draws.OneOf({1024.0, 2048.0}),
                          draws.OneOf({512.0, 1024.0}), 32768};
  builder.Layers(model, draws.Chance(0.4));
  if (draws.Chance(0.4)) builder.Compression();
  builder.Kinds(draws.Integer(2, 3));
  const int node_size = draws.OneOf({4, 8});
  builder.Devices(std::vector<int>(static_cast<std::size_t>(devices / node_size), node_size), true);
  builder.SwitchLinks(builder.BalancedBandwidth() * draws.LogUniform(0.5, 20), draws.OneOf({2, 4}),
                      draws.OneOf({1.0, 2.0, 4.0}));
  if (draws.Chance(0.5)) builder.problem().choices.tensor = {1, 2, 4};
  MemoryChoices(draws, builder.problem().choices);
  return builder.problem();
}

}  // namespace adaptive_train::oracle
