#include "launcher/planner/check_problem.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <iterator>

namespace adaptive_train {
namespace {

constexpr std::size_t kMaxLayers = 1'000'000, kMaxDevices = 1'000'000, kMaxNodes = 20'000;
constexpr std::int64_t kMaxBatch = std::int64_t{1} << 40;

bool Sound(double value) { return std::isfinite(value) && value >= 0; }
bool Positive(double value) { return std::isfinite(value) && value > 0; }
bool IsShare(double value) { return value >= 0 && value <= 1; }
bool Sound(const RankSums& sums) {
  return Sound(sums.count.fixed) && Sound(sums.count.per_sample) && Sound(sums.bytes) &&
         Sound(sums.bytes_per_rank);
}

Result<void> CheckSizes(const PlanProblem& problem) {
  if (problem.global_batch < 1 || problem.global_batch > kMaxBatch)
    return Fail(
        fmt::format("global_batch is {}, allowed: 1 to {}", problem.global_batch, kMaxBatch));
  if (problem.layers.empty() || problem.layers.size() > kMaxLayers)
    return Fail(fmt::format("the model has {} layers, allowed: 1 to {}", problem.layers.size(),
                            kMaxLayers));
  if (problem.devices.empty() || problem.devices.size() > kMaxDevices)
    return Fail(fmt::format("there are {} devices to plan for, allowed: 1 to {}",
                            problem.devices.size(), kMaxDevices));
  if (problem.links.Nodes() < 1 || problem.links.Nodes() > kMaxNodes)
    return Fail(fmt::format("links are given for {} nodes, allowed: 1 to {}", problem.links.Nodes(),
                            kMaxNodes));
  return {};
}

Result<void> CheckLayers(const PlanProblem& problem) {
  for (std::size_t l = 0; l < problem.layers.size(); ++l) {
    const ProblemLayer& layer = problem.layers[l];
    bool sound = Sound(layer.parameter_bytes) && Sound(layer.gradient_bytes) &&
                 Sound(layer.optimizer_bytes) && Sound(layer.boundary_bytes) &&
                 Sound(layer.compressed_bytes) && Sound(layer.compression_s);
    for (std::size_t r = 0; r < kRecomputes; ++r)
      sound = sound && Sound(layer.activation_bytes[r]) && Sound(layer.whole_activation_bytes[r]) &&
              Sound(layer.backward_sums[r]) && Sound(layer.kv_head_bytes[r]);
    sound = sound && Sound(layer.forward_sums) && Sound(layer.head_sums) && layer.kv_heads >= 0;
    if (!IsShare(layer.whole_parameters) || !IsShare(layer.whole_work))
      return Fail(
          fmt::format("layer {}: tensor ranks have {} of its parameters and {} of its work as a "
                      "whole; both are "
                      "shares from 0 to 1",
                      l, layer.whole_parameters, layer.whole_work));
    if (!sound)
      return Fail(fmt::format("layer {}: bytes and seconds must be finite and not negative", l));
  }
  if (problem.tied && !(Positive(problem.layers.front().gradient_bytes)))
    return Fail("tied embeddings need a first layer with gradients");
  bool sound = Sound(problem.tied_bytes) && Sound(problem.base_bytes) &&
               Sound(problem.snapshot_share) && Sound(problem.feedback_copies);
  for (double value : problem.recompute_share) sound = sound && Sound(value);
  for (const auto& [ranks, bytes] : problem.rank_bytes) {
    for (double value : bytes.workspace) sound = sound && Sound(value);
    double before = 0;
    for (double value : bytes.scratch) {
      sound = sound && Sound(value) && value >= before;
      before = value;
    }
  }
  if (!sound)
    return Fail("bytes that ranks need must be finite, not negative, and grow with micro-batches");
  return {};
}

Result<void> CheckKind(const PlanProblem& problem, const DeviceKind& kind) {
  if (kind.layers.size() != problem.layers.size())
    return Fail(fmt::format("{}: times are given for {} layers, the model has {}", kind.name,
                            kind.layers.size(), problem.layers.size()));
  for (std::size_t l = 0; l < kind.layers.size(); ++l) {
    const LayerSeconds& seconds = kind.layers[l];
    if (!Sound(seconds.forward.fixed) || !Sound(seconds.backward.fixed) ||
        !Positive(seconds.forward.per_sample) || !Positive(seconds.backward.per_sample) ||
        !Sound(seconds.update) || !Sound(seconds.weight_gradients.fixed) ||
        !Sound(seconds.weight_gradients.per_sample) ||
        seconds.weight_gradients.fixed > seconds.backward.fixed ||
        seconds.weight_gradients.per_sample > seconds.backward.per_sample)
      return Fail(fmt::format(
          "{}: the seconds of layer {} must be finite, those per sample above 0", kind.name, l));
  }
  return {};
}

Result<void> CheckDevices(const PlanProblem& problem) {
  for (std::size_t i = 0; i < problem.devices.size(); ++i) {
    const ProblemDevice& device = problem.devices[i];
    if (device.kind < 0 || static_cast<std::size_t>(device.kind) >= problem.kinds.size() ||
        device.node < 0 || static_cast<std::size_t>(device.node) >= problem.links.Nodes())
      return Fail(fmt::format("device {}: its kind {} or node {} does not exist", i, device.kind,
                              device.node));
    if (!Positive(device.memory_bytes) || !Positive(device.standing) || device.standing > 1)
      return Fail(fmt::format(
          "device {}: memory must be above 0 (is {}), standing above 0 and up to 1 (is {})", i,
          device.memory_bytes, device.standing));
  }
  return {};
}

Result<void> CheckLinks(const PlanProblem& problem) {
  const auto nodes = static_cast<int>(problem.links.Nodes());
  for (int from = 0; from < nodes; ++from) {
    for (int to = 0; to < nodes; ++to) {
      const LinkSpeed& link = problem.links.At(from, to);
      if (!Sound(link.latency_s) || !Sound(link.bytes_per_second))
        return Fail(fmt::format(
            "link from node {} to node {}: {} bytes/s after {} s; both must be finite and not "
            "negative, 0 bytes/s where there is none",
            from, to, link.bytes_per_second, link.latency_s));
    }
  }
  return {};
}

Result<void> CheckAskedCut(const Choices& choices, int layers) {
  const std::vector<int>& cut = choices.cut;
  if (cut.empty()) return {};
  if (choices.pipeline.size() != 1 || cut.size() < 2 ||
      (std::ssize(cut) - 1) % choices.pipeline.front() != 0)
    return Fail(
        fmt::format("a cut into {} chunks is asked for without a number of stages that has "
                    "as many each",
                    std::ssize(cut) - 1));
  const bool ascends =
      std::adjacent_find(cut.begin(), cut.end(), std::greater_equal<>()) == cut.end();
  if (cut.front() != 0 || cut.back() != layers || !ascends)
    return Fail(fmt::format("the cut that is asked for must ascend from 0 to {}", layers));
  return {};
}

Result<void> CheckChoices(const Choices& choices) {
  if (choices.tensor.empty() || choices.recompute.empty() || choices.shard.empty())
    return Fail("tensor, recompute and shard need one allowed value at least");
  const auto below_one = [](const auto& list) {
    for (auto value : list)
      if (value < 1) return true;
    return false;
  };
  if (below_one(choices.tensor) || below_one(choices.data) || below_one(choices.pipeline) ||
      below_one(choices.micro_batch))
    return Fail("numbers of replicas, stages, tensor ranks and samples must be 1 or more");
  for (int shard : choices.shard)
    if (shard < 0 || shard > 2) return Fail(fmt::format("shard {}: allowed are 0, 1, 2", shard));
  for (Recompute recompute : choices.recompute)
    if (static_cast<std::size_t>(recompute) >= kRecomputes)
      return Fail("recompute: allowed are none, selective, full");
  return {};
}

}  // namespace

Result<void> CheckProblem(const PlanProblem& problem) {
  if (auto sizes = CheckSizes(problem); !sizes) return sizes;
  if (auto layers = CheckLayers(problem); !layers) return layers;
  for (const DeviceKind& kind : problem.kinds)
    if (auto sound = CheckKind(problem, kind); !sound) return sound;
  if (auto devices = CheckDevices(problem); !devices) return devices;
  if (auto links = CheckLinks(problem); !links) return links;
  if (auto choices = CheckChoices(problem.choices); !choices) return choices;
  return CheckAskedCut(problem.choices, static_cast<int>(problem.layers.size()));
}

}  // namespace adaptive_train
