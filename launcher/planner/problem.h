// A planning problem as numbers alone: devices, links, layers, and the allowed choices.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <map>
#include <string>
#include <vector>

#include "core/model_shape.h"
#include "core/schedule/compute_order.h"

namespace adaptive_train {

inline constexpr std::size_t kRecomputes = 3;  // values of Recompute

/// A quantity that grows with the samples of a micro-batch: fixed + per_sample x samples.
struct Line {
  double fixed = 0;
  double per_sample = 0;
  double At(double samples) const { return fixed + per_sample * samples; }
};

/// Seconds that one layer takes on one device of a kind.
struct LayerSeconds {
  Line forward;
  Line backward;               // without recomputation
  double update = 0;           // of the optimizer, for all of the layer's parameters
  Line weight_gradients = {};  // of backward, what a backward in halves leaves to its second half
};

/// Devices that are equally fast.
struct DeviceKind {
  std::string name;
  bool measured = false;             // false: estimated from the processor
  std::vector<LayerSeconds> layers;  // index = layer
  /// Seconds of computing that each byte sent or received takes from a device whose own processor
  /// moves messages; 0 otherwise.
  double transfer_s_per_byte = 0;
};

struct ProblemDevice {
  int kind = 0;
  int node = 0;
  double memory_bytes = 0;  // all of it; the plan uses kMemoryShare at most
  double standing = 1;      // 1 = trusted; lower after recent failures: its time counts 1/standing
};

struct LinkSpeed {
  double latency_s = 0;
  double bytes_per_second = 0;
};

/// Speeds between nodes in each direction, a square of `nodes` x `nodes`. The diagonal holds the
/// speed between devices of one node.
class LinkTable {
 public:
  LinkTable() = default;
  explicit LinkTable(std::size_t nodes, LinkSpeed all = {})
      : nodes_(nodes), speeds_(nodes * nodes, all) {}
  std::size_t Nodes() const { return nodes_; }
  LinkSpeed& At(int from, int to) { return speeds_[Index(from, to)]; }
  const LinkSpeed& At(int from, int to) const { return speeds_[Index(from, to)]; }

 private:
  std::size_t Index(int from, int to) const {
    return static_cast<std::size_t>(from) * nodes_ + static_cast<std::size_t>(to);
  }
  std::size_t nodes_ = 0;
  std::vector<LinkSpeed> speeds_;
};

/// The sums over tensor ranks that a layer's pass in one direction waits for.
struct RankSums {
  Line count;                 // how many
  double bytes = 0;           // of one sample, of all of them
  double bytes_per_rank = 0;  // the same besides, times the ranks

  RankSums& operator+=(const RankSums& more);
  /// Seconds as ring all-reduces over a link; infinite where there is none.
  Line Seconds(int ranks, const LinkSpeed& inside) const;
};

/// One layer: embedding, block or head. Tensor ranks share it, but for what each of them has or does
/// as a whole.
struct ProblemLayer {
  double parameter_bytes = 0;
  double gradient_bytes = 0;
  double optimizer_bytes = 0;
  std::array<double, kRecomputes> activation_bytes{};  // kept, for one sample; index = Recompute
  std::array<double, kRecomputes> whole_activation_bytes{};  // of these, what every tensor rank has
  std::array<double, kRecomputes>
      kv_head_bytes{};          // of activation_bytes, one head's keys and values
  double boundary_bytes = 0;    // of one sample, to the next layer; 0 for the last layer
  bool block = false;           // one of those that are alike
  double whole_parameters = 0;  // and gradients, moments, update: a share of 1
  double whole_work = 0;        // of forward and backward: a share of 1
  RankSums forward_sums;
  std::array<RankSums, kRecomputes> backward_sums{};
  // More tensor ranks than `kv_heads` share heads of keys and values: each has a head's activations,
  // and a pass waits for these as well. 0: no attention.
  int kv_heads = 0;
  RankSums head_sums;
  double compressed_bytes = 0;  // of the gradient, if compressed; 0 = cannot be
  double compression_s = 0;     // cost of compression per device and step

  // What one of so many tensor ranks has or does: shares, and bytes that it keeps of a sample.
  double PartOfParameters(int ranks) const { return PartOfOne(whole_parameters, ranks); }
  double PartOfWork(int ranks) const { return PartOfOne(whole_work, ranks); }
  double ActivationBytes(std::size_t recompute, int ranks) const {
    const double whole = whole_activation_bytes[recompute];
    const double shared = whole + (activation_bytes[recompute] - whole) / ranks;
    return SharesHeads(ranks) ? shared + kv_head_bytes[recompute] * (1.0 - 1.0 * kv_heads / ranks)
                              : shared;
  }
  bool SharesHeads(int ranks) const { return kv_heads > 0 && ranks > kv_heads; }
  /// What so many tensor ranks sum in a pass.
  RankSums ForwardSums(int ranks) const;
  RankSums BackwardSums(std::size_t recompute, int ranks) const;
};

/// What a rank needs besides its layers.
struct RankBytes {
  std::array<double, kRecomputes> workspace{};  // of one sample, shared by a rank's layers
  std::vector<double> scratch;  // with a micro-batch of index + 1 samples; larger ones follow the
                                // line through the last two, or zero
  double Scratch(std::int64_t micro_batch) const;
};

/// The allowed choices. A list with one entry is a decision already made.
struct Choices {
  std::vector<int> data;       // numbers of replicas; empty: any
  std::vector<int> tensor{1};  // devices of one node that share each layer of a stage
  std::vector<int> pipeline;   // numbers of stages; empty: any
  std::vector<std::int64_t>
      micro_batch;  // samples; empty: any. Pipelines need a divisor of global_batch
  std::vector<Recompute> recompute{Recompute::kNone};
  std::vector<int> shard{0};  // ZeRO: 0 nothing, 1 moments, 2 moments and gradients
  std::size_t most_ranks = std::numeric_limits<int>::max();  // stages x replicas x tensor ranks
  // The chunks' layers as in Layout, of the only number of stages that `pipeline` then has; empty:
  // any.
  std::vector<int> cut = {};

  /// Replicas of so many stages and tensor ranks that these ranks make.
  int MostReplicas(int stages, int tensor_ranks) const {
    return static_cast<int>(most_ranks / static_cast<std::size_t>(stages * tensor_ranks));
  }
};

struct PlanProblem {
  std::int64_t global_batch = 0;  // samples of one optimizer step
  std::vector<ProblemLayer> layers;
  std::vector<DeviceKind> kinds;
  std::vector<ProblemDevice> devices;
  LinkTable links;
  std::vector<std::string> node_names;
  bool tied = false;                    // the last layer uses the first one's parameters
  double tied_bytes = 0;                // their gradient's bytes
  double base_bytes = 0;                // of a rank before it has a model
  std::map<int, RankBytes> rank_bytes;  // by tensor ranks; others need what the next fewer do
  std::array<double, kRecomputes> recompute_share{0, 0.1, 1};  // of forward, done again in backward
  double snapshot_share = 3;    // bytes of a checkpoint's snapshot / bytes of parameters
  double feedback_copies = 0;   // of the gradients, for compression; with several replicas only
  bool compress_all = false;    // all that can be; false: only where it saves time
  bool exchange_after = false;  // the update; nothing of it goes on beside backward
  bool compress_from_start = false;  // nothing large is ever exchanged whole
  /// Shares are whole micro-batches, of a size that divides the batch, and gradients are summed by
  /// the tree over these units (core/unit_tree.h).
  bool whole_micro_batches = false;
  bool shares_rows = false;  // tensor ranks, inside blocks and in messages between stages
  Choices choices;

  /// Whether replicas of so many stages share out micro-batches, otherwise samples. 0: of any size.
  bool InMicroBatches(int stages, std::int64_t micro_batch) const {
    return stages > 1 || (whole_micro_batches && micro_batch > 0);
  }
  /// How many of these there are.
  std::int64_t Shared(int stages, std::int64_t micro_batch) const {
    return InMicroBatches(stages, micro_batch) ? global_batch / micro_batch : global_batch;
  }
  /// What one of `ranks` tensor ranks of this stage needs to sum its units, where `kept` sums of its
  /// gradients' bytes stand beside them (MostKept): these, both parts of a matrix that embedding and
  /// head share, and what is packed and received in the exchange.
  double UnitBytes(int stage, int stages, int ranks, int replicas, double gradients,
                   std::int64_t kept) const;
  /// What one of `ranks` tensor ranks needs whatever its layers are.
  double CommonBytes(Recompute recompute, std::int64_t micro_batch, int ranks) const;
  /// What a rank of a stage holds for the other stages with one-forward-one-backward: of each
  /// neighbour two messages from it and two to it; and TiedBytes.
  double BoundaryBytes(int stage, int stages, std::int64_t micro_batch, int ranks) const;
  /// So many messages between stages of `ranks` tensor ranks.
  double MessageBytes(int messages, std::int64_t micro_batch, int ranks) const;
  /// What one sample's activations are where they enter layers [begin, end) and where they leave them.
  double CrossingBytes(int begin, int end) const;
  /// With tied embeddings the last stage has a copy of the weights and its gradient, which the
  /// first one receives. One of `ranks` tensor ranks has its part.
  double TiedBytes(int stage, int stages, int ranks, int weight_versions = 1) const;
  /// Sharded gradients that stand whole on a rank, one of `ranks` tensor ranks, at the same time: a
  /// layer's until they are on their way to their owners, and beside those of all but the first
  /// layer the tied embeddings', which are not final before the pass ends.
  double PassingGradientBytes(int ranks) const;
  /// Of a rank's sharded gradients, the share that is on its way to the owners at most
  /// (kOnTheirWay of runtime/train/step_exchange.cc).
  double OnTheirWayShare() const;
  /// Of a stage's gradients, how many copies stand on a rank for their exchange: pieces of a ring's
  /// sums, or packed, received and summed chunks of sharded ones that are on their way; and what
  /// feedback takes, in which compressed messages are counted.
  double ExchangeCopies(int shard, int replicas) const;
};

/// Of a stage's `whole` gradients, what a rank has that shares them out among `replicas`: its own,
/// and of the others as much as passes, if not less than that is not on its way yet.
double ShardedGradientBytes(double whole, int replicas, double passing, double on_their_way_share);

inline constexpr double kOnTheirWayBytes = 16 << 20;
inline constexpr double kMemoryShare = 0.9;  // of a device; the rest is the system's

/// A replica's share of the batch.
struct ReplicaShare {
  std::int64_t samples = 0;
  std::int64_t micro_batch = 1;
  std::int64_t MicroBatches() const { return (samples + micro_batch - 1) / micro_batch; }
};

/// A plan in the problem's own indices: `data` replicas of a pipeline of `Stages()` stages. Each
/// stage of a replica is on `tensor` devices of one node, and has `interleave` chunks of the model:
/// chunk c is of stage c mod Stages().
struct Layout {
  int data = 1;
  int tensor = 1;
  int interleave = 1;
  ScheduleKind schedule = ScheduleKind::kOneForwardOneBackward;
  std::vector<Schedule> listed;  // index = replica: list schedules; empty: all follow `schedule`
  Recompute recompute = Recompute::kNone;
  int shard = 0;
  std::vector<int> cut;                 // chunk c has layers [cut[c], cut[c + 1])
  std::vector<int> devices;             // index DeviceIndex(stage, replica, tensor rank)
  std::vector<ReplicaShare> shares;     // index = replica
  std::vector<std::vector<int>> rings;  // [stage]: replicas in the order of the gradients' ring
  std::vector<bool> compressed;         // index = layer

  int Chunks() const { return static_cast<int>(cut.size()) - 1; }  // of the whole pipeline
  int Stages() const { return Chunks() / interleave; }
  /// Ascending.
  std::vector<int> LayersOf(int stage) const {
    std::vector<int> layers;
    for (auto c = static_cast<std::size_t>(stage); c + 1 < cut.size();
         c += static_cast<std::size_t>(Stages()))
      for (int l = cut[c]; l < cut[c + 1]; ++l) layers.push_back(l);
    return layers;
  }
  /// Whether docs/planning.md has a formula for its time; others are played.
  bool IsPlain() const {
    return interleave == 1 && listed.empty() && schedule == ScheduleKind::kOneForwardOneBackward;
  }
  std::size_t DeviceIndex(int stage, int replica, int tensor_rank) const {
    const auto of_stage = static_cast<std::size_t>(stage) * static_cast<std::size_t>(data);
    return (of_stage + static_cast<std::size_t>(replica)) * static_cast<std::size_t>(tensor) +
           static_cast<std::size_t>(tensor_rank);
  }
};

/// What a layout costs, by docs/planning.md. Seconds of one optimizer step.
struct StepCost {
  double step = 0;         // the sum of the parts
  double compute = 0;      // forward and backward of the slowest replica's busiest stage
  double bubble = 0;       // added by other stages and the filling, without activations
  double activations = 0;  // exposed transfers between stages
  double gradients = 0;    // exposed exchange of gradients
  double update = 0;       // of the optimizer
};

/// Evaluates a layout that is well formed (CheckLayout).
StepCost CostOf(const PlanProblem& problem, const Layout& layout);

/// The order in which the stages of a replica compute; its stages are the layout's chunks. The
/// schedule must have an order for the layout's shape.
inline Schedule OrderOf(const Layout& layout, int replica, int steps = 1) {
  if (!layout.listed.empty()) return layout.listed[static_cast<std::size_t>(replica)];
  const auto micro_batches =
      static_cast<int>(layout.shares[static_cast<std::size_t>(replica)].MicroBatches());
  return ComputeOrder(layout.schedule, {layout.Stages(), layout.interleave, micro_batches, steps})
      .value();
}

/// Bytes that each device of the layout needs; index as in Layout::devices.
std::vector<double> MemoryOf(const PlanProblem& problem, const Layout& layout);

}  // namespace adaptive_train
