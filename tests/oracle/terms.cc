#include "tests/oracle/terms.h"

#include <algorithm>
#include <cstddef>
#include <vector>

namespace adaptive_train::oracle {
namespace {

constexpr double kNever = std::numeric_limits<double>::infinity();  // over a link that is not there

const ProblemDevice& DeviceAt(const PlanProblem& problem, int device) {
  return problem.devices.at(static_cast<std::size_t>(device));
}

const LayerSeconds& SecondsAt(const PlanProblem& problem, int device, int layer) {
  const int kind = DeviceAt(problem, device).kind;
  return problem.kinds.at(static_cast<std::size_t>(kind))
      .layers.at(static_cast<std::size_t>(layer));
}

const ProblemLayer& LayerAt(const PlanProblem& problem, int layer) {
  return problem.layers.at(static_cast<std::size_t>(layer));
}

/// Of what tensor ranks share but for a `whole` part, one rank's.
double Mine(double whole, int tensor) { return (1 + whole * (tensor - 1)) / tensor; }

/// All-reduces over the tensor ranks of a node.
double AllReduces(const PlanProblem& problem, int device, const RankSums& sums, int tensor,
                  double samples) {
  if (tensor == 1 || sums.count.At(samples) == 0) return 0;
  const int node = DeviceAt(problem, device).node;
  const LinkSpeed& link = problem.links.At(node, node);
  if (link.bytes_per_second <= 0) return kNever;
  const double bytes = samples * (sums.bytes + sums.bytes_per_rank * tensor);
  const double step = bytes / tensor / link.bytes_per_second;
  return 2 * (tensor - 1) * (sums.count.At(samples) * link.latency_s + step);
}

/// What ranks exchange of keys and values in a pass if there are more ranks than heads of these.
double SharedHeads(const PlanProblem& problem, int device, const ProblemLayer& of, int tensor,
                   double samples) {
  if (of.kv_heads == 0 || tensor <= of.kv_heads) return 0;
  return AllReduces(problem, device, of.head_sums, tensor, samples);
}

double Share(const PlanProblem& problem, Recompute recompute) {
  return problem.recompute_share.at(static_cast<std::size_t>(recompute));
}

double OneWay(const PlanProblem& problem, int from, int to, double bytes) {
  const LinkSpeed& link = problem.links.At(from, to);
  return link.bytes_per_second > 0 ? link.latency_s + bytes / link.bytes_per_second : kNever;
}

double SentBytes(const PlanProblem& problem, int layer, const std::vector<bool>& compressed) {
  const ProblemLayer& of = LayerAt(problem, layer);
  return compressed.at(static_cast<std::size_t>(layer)) ? of.compressed_bytes : of.gradient_bytes;
}

/// Of the most tensor ranks, up to `tensor`, for which it is given.
RankBytes BytesOf(const PlanProblem& problem, int tensor) {
  RankBytes found;
  for (const auto& [ranks, bytes] : problem.rank_bytes)
    if (ranks <= tensor) found = bytes;
  return found;
}

double ScratchOf(const std::vector<double>& known, std::int64_t micro_batch) {
  if (known.empty()) return 0;
  const auto wanted = static_cast<std::size_t>(micro_batch);
  if (wanted <= known.size()) return known[wanted - 1];
  const double slope = known.back() - (known.size() == 1 ? 0 : known[known.size() - 2]);
  return known.back() + slope * static_cast<double>(wanted - known.size());
}

}  // namespace

double ForwardOf(const PlanProblem& problem, int device, int layer, int tensor, double samples) {
  const Line& line = SecondsAt(problem, device, layer).forward;
  const ProblemLayer& of = LayerAt(problem, layer);
  return (line.fixed + line.per_sample * samples) * Mine(of.whole_work, tensor) /
             DeviceAt(problem, device).standing +
         AllReduces(problem, device, of.forward_sums, tensor, samples) +
         SharedHeads(problem, device, of, tensor, samples);
}

double BackwardOf(const PlanProblem& problem, int device, int layer, int tensor,
                  Recompute recompute, double samples) {
  const LayerSeconds& seconds = SecondsAt(problem, device, layer);
  const double again =
      Share(problem, recompute) * (seconds.forward.fixed + seconds.forward.per_sample * samples);
  const double own = seconds.backward.fixed + seconds.backward.per_sample * samples;
  const ProblemLayer& of = LayerAt(problem, layer);
  return (own + again) * Mine(of.whole_work, tensor) / DeviceAt(problem, device).standing +
         AllReduces(problem, device, of.backward_sums.at(static_cast<std::size_t>(recompute)),
                    tensor, samples) +
         (recompute == Recompute::kFull ? 2 : 1) *
             SharedHeads(problem, device, of, tensor, samples);
}

double UpdateOf(const PlanProblem& problem, int device, int layer, int tensor, int data,
                int shard) {
  return SecondsAt(problem, device, layer).update *
         Mine(LayerAt(problem, layer).whole_parameters, tensor) /
         DeviceAt(problem, device).standing / (shard >= 1 ? data : 1);
}

double ThereAndBack(const PlanProblem& problem, int node, int other, double bytes) {
  return OneWay(problem, node, other, bytes) + OneWay(problem, other, node, bytes);
}

RingLinks LinksOfRing(const PlanProblem& problem, const std::vector<int>& nodes) {
  RingLinks links;
  for (std::size_t i = 0; i < nodes.size(); ++i) {
    const LinkSpeed& link = problem.links.At(nodes[i], nodes[(i + 1) % nodes.size()]);
    links.bytes_per_second = std::min(links.bytes_per_second, link.bytes_per_second);
    links.latency_s = std::max(links.latency_s, link.latency_s);
  }
  return links;
}

double RingSeconds(const RingLinks& links, int data, double bytes) {
  if (links.bytes_per_second <= 0) return kNever;
  const double rate = links.moving_s_per_byte > 0
                          ? std::min(links.bytes_per_second, 0.5 / links.moving_s_per_byte)
                          : links.bytes_per_second;
  return 2 * (data - 1) * (2 * links.latency_s + bytes / (data * rate));
}

bool Compresses(const PlanProblem& problem, int layer, const RingLinks& links, int data) {
  const ProblemLayer& of = LayerAt(problem, layer);
  if (data == 1 || of.compressed_bytes <= 0) return false;
  if (problem.compress_all) return links.bytes_per_second > 0;
  return RingSeconds(links, data, of.compressed_bytes) + of.compression_s <
         RingSeconds(links, data, of.gradient_bytes);
}

double ExchangeTerms::Exposed(double backward) const {
  return std::max(whole - backward - slowing, first_layer) + compression;
}

ExchangeTerms ExchangeOf(const PlanProblem& problem, LayerRange range,
                         const std::vector<bool>& compressed, const RingLinks& links, int data) {
  ExchangeTerms terms;
  if (data == 1) return terms;
  double bytes = 0;
  for (int layer = range.first; layer < range.end; ++layer) {
    bytes += SentBytes(problem, layer, compressed);
    if (compressed.at(static_cast<std::size_t>(layer)))
      terms.compression += LayerAt(problem, layer).compression_s;
  }
  terms.whole = RingSeconds(links, data, bytes);
  const double first = SentBytes(problem, range.first, compressed);
  const double each_way = 2 * (bytes - first) * (data - 1) / data;
  terms.first_layer = RingSeconds(links, data, first);
  terms.slowing = 2 * each_way * links.moving_s_per_byte;
  return terms;
}

/// A replica's part of `gradients` and what passes, at most all that is not on its way.
double ShardedGradients(const PlanProblem& problem, double gradients, const MemoryChoice& choice) {
  double passing = 0, all = 0;
  for (std::size_t i = 0; i < problem.layers.size(); ++i) {
    const ProblemLayer& of = problem.layers[i];
    const double shared = problem.tied && i > 0 ? problem.tied_bytes / choice.tensor : 0;
    passing =
        std::max(passing, shared + of.gradient_bytes * Mine(of.whole_parameters, choice.tensor));
    all += of.gradient_bytes;
  }
  const double waiting = gradients - gradients * std::min(1.0, 16777216 / all);
  return std::min(gradients, gradients / choice.data + std::min(passing, waiting));
}

/// Messages from and to the stages beside this one, and what tied embeddings take at both ends.
double AtTheEnds(const PlanProblem& problem, LayerRange range, const MemoryChoice& choice,
                 double samples) {
  if (choice.stages == 1) return 0;
  const ProblemLayer& embedding = problem.layers.front();
  const double message = samples * embedding.boundary_bytes;
  const double tied = problem.tied_bytes / choice.tensor;
  const double copy = tied * (1 + embedding.parameter_bytes / embedding.gradient_bytes);
  double bytes = 0;
  if (range.first > 0) bytes += 4 * message;
  if (range.end < static_cast<int>(problem.layers.size())) bytes += 4 * message;
  if (!problem.tied) return bytes;
  if (range.first == 0) bytes += tied;
  if (range.end == static_cast<int>(problem.layers.size())) bytes += copy;
  return bytes;
}

MemoryTerms MemoryOfStage(const PlanProblem& problem, LayerRange range,
                          const MemoryChoice& choice) {
  const auto recompute = static_cast<std::size_t>(choice.recompute);
  const auto samples = static_cast<double>(choice.micro_batch);
  MemoryTerms terms;
  double all = 0, gradients = 0;
  for (const ProblemLayer& of : problem.layers) all += of.gradient_bytes;
  const double share = choice.shard == 0 ? 1.0 / choice.data : 2 * std::min(1.0, 16777216 / all);
  for (int layer = range.first; layer < range.end; ++layer) {
    const ProblemLayer& of = LayerAt(problem, layer);
    double bytes = of.parameter_bytes;
    bytes += of.optimizer_bytes / (choice.shard >= 1 ? choice.data : 1);
    bytes += problem.snapshot_share * of.parameter_bytes / choice.data;
    if (choice.data > 1) bytes += of.gradient_bytes * (share + problem.feedback_copies);
    const double mine = Mine(of.whole_parameters, choice.tensor);
    terms.fixed += bytes * mine;
    gradients += of.gradient_bytes * mine;
    const double whole = of.whole_activation_bytes.at(recompute);
    terms.in_flight +=
        samples * (whole + (of.activation_bytes.at(recompute) - whole) / choice.tensor);
    if (of.kv_heads > 0 && choice.tensor > of.kv_heads) {
      const double sharing = 1.0 * choice.tensor / of.kv_heads;
      terms.in_flight += samples * of.kv_head_bytes.at(recompute) * (1 - 1 / sharing);
    }
  }
  terms.fixed += choice.shard == 2 ? ShardedGradients(problem, gradients, choice) : gradients;
  const RankBytes bytes = BytesOf(problem, choice.tensor);
  terms.fixed += problem.base_bytes + samples * bytes.workspace.at(recompute) +
                 ScratchOf(bytes.scratch, choice.micro_batch);
  terms.fixed += AtTheEnds(problem, range, choice, samples);
  return terms;
}

}  // namespace adaptive_train::oracle
