#include "launcher/planner/arrangement.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "launcher/planner/layout.h"

namespace adaptive_train {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

std::size_t Index(int i) { return static_cast<std::size_t>(i); }

}  // namespace

Arrangement::Arrangement(SearchTables& tables, const std::vector<Group>& groups, const Shape& shape)
    : tables_(tables),
      groups_(groups),
      shape_(shape),
      sums_(tables.Sums(shape.tensor, shape.recompute)),
      classes_(tables.Classes().size()) {
  common_bytes_ = tables.Problem().CommonBytes(
      shape.recompute, std::max<std::int64_t>(shape.micro_batch, 1), shape.tensor);
  gradient_sums_.push_back(0);
  for (const ProblemLayer& layer : tables.Problem().layers) {
    compressible_ = compressible_ || layer.compressed_bytes > 0;
    gradient_sums_.push_back(gradient_sums_.back() + layer.gradient_bytes);
  }
}

double Arrangement::Set(Placement placement) {
  placement_ = std::move(placement);
  seconds_.assign(Index(shape_.stages) * classes_, {});
  stages_.assign(Index(shape_.stages), {});
  replicas_.assign(Index(shape_.data), {});
  for (int s = 0; s < shape_.stages; ++s) {
    SetLayers(s);
    SetMembers(s);
  }
  for (int d = 0; d < shape_.data; ++d) SetReplica(d);
  return Rescore();
}

void Arrangement::SetLayers(int stage) {
  Stage& out = stages_[Index(stage)];
  const int begin = placement_.cut[Index(stage)], end = placement_.cut[Index(stage) + 1];
  const auto b = static_cast<double>(shape_.micro_batch);
  out.bytes = sums_.Bytes(shape_, begin, end);
  out.bytes.kept +=
      tables_.Problem().BoundaryBytes(stage, shape_.stages, shape_.micro_batch, shape_.tensor);
  out.boundary_bytes = b * tables_.Problem().layers[Index(end - 1)].boundary_bytes;
  out.sums = sums_.Sums(begin, end);
  for (std::size_t c = 0; c < classes_; ++c) {
    const DeviceClass& known = tables_.Classes()[c];
    ClassSeconds& seconds = seconds_[Index(stage) * classes_ + c];
    RangeSeconds lines = sums_.Seconds(known.kind, begin, end);
    for (Line* line : {&lines.forward, &lines.backward}) {
      line->fixed /= known.standing;
      line->per_sample /= known.standing;
    }
    seconds.lines = lines;
    const double moving = MovingSeconds(tables_.Problem(), known.kind, shape_.tensor,
                                        b * tables_.Problem().CrossingBytes(begin, end)) /
                          known.standing;
    seconds.forward = lines.forward.At(b) + moving;
    seconds.backward = lines.backward.At(b) + moving;
    seconds.update =
        lines.update / known.standing / (shape_.shard >= 1 ? static_cast<double>(shape_.data) : 1);
  }
}

Arrangement::TensorLines Arrangement::TensorLinesOf(int stage, const Group& group,
                                                    double& amiss) const {
  if (shape_.tensor == 1) return {};
  const LinkSpeed& inside = tables_.Problem().links.At(group.node, group.node);
  if (inside.bytes_per_second <= 0) {
    amiss += 1;
    return {};
  }
  const RangeSums& sums = stages_[Index(stage)].sums;
  return {sums.forward.Seconds(shape_.tensor, inside),
          sums.backward.Seconds(shape_.tensor, inside)};
}

void Arrangement::SetMembers(int stage) {
  Stage& out = stages_[Index(stage)];
  out.hidden = kInfinity;
  out.update = out.amiss = 0;
  double transfer = 0;
  nodes_.clear();
  for (int d = 0; d < shape_.data; ++d) {
    const Group& group = At(stage, d);
    const ClassSeconds& seconds = SecondsOf(stage, group);
    double amiss = 0;
    const Line sums = TensorLinesOf(stage, group, amiss).backward;
    out.hidden =
        std::min(out.hidden, seconds.backward + sums.At(static_cast<double>(shape_.micro_batch)));
    out.update = std::max(out.update, seconds.update);
    transfer = std::max(transfer, tables_.TransferPerByte(group.device_class) / shape_.tensor);
    nodes_.push_back(group.node);
  }
  if (shape_.data == 1) return;
  out.ring = tables_.Rings().Speed(nodes_);
  out.ring.transfer_s_per_byte = transfer;
  if (out.ring.bytes_per_second <= 0)
    out.amiss = 1;
  else
    SetExchange(stage);
}

void Arrangement::SetExchange(int stage) {
  Stage& out = stages_[Index(stage)];
  const auto& layers = tables_.Problem().layers;
  const int begin = placement_.cut[Index(stage)], end = placement_.cut[Index(stage) + 1];
  double bytes = gradient_sums_[Index(end)] - gradient_sums_[Index(begin)];
  double first = layers[Index(begin)].gradient_bytes;
  out.compression = 0;
  for (int l = compressible_ ? begin : end; l < end; ++l) {
    const ProblemLayer& layer = layers[Index(l)];
    if (!Compresses(tables_.Problem(), l, shape_.data, out.ring)) continue;
    bytes += layer.compressed_bytes - layer.gradient_bytes;
    out.compression += layer.compression_s;
    if (l == begin) first = layer.compressed_bytes;
  }
  out.exchange = RingSeconds(shape_.data, out.ring, bytes);
  out.first = RingSeconds(shape_.data, out.ring, first);
  out.slowing = SlowingSeconds(shape_.data, out.ring, bytes - first);
}

void Arrangement::SetReplica(int replica) {
  Replica& out = replicas_[Index(replica)];
  out = {};
  if (shape_.stages == 1)
    SetWhole(replica, out);
  else
    SetPipeline(replica, out);
}

void Arrangement::SetPipeline(int replica, Replica& out) const {
  const LinkTable& links = tables_.Problem().links;
  const auto b = static_cast<double>(shape_.micro_batch);
  out.pipeline.most = tables_.Problem().global_batch;
  for (int s = shape_.stages - 1; s >= 0; --s) {
    const Group& group = At(s, replica);
    const Stage& stage = stages_[Index(s)];
    const ClassSeconds& seconds = SecondsOf(s, group);
    const TensorLines sums = TensorLinesOf(s, group, out.amiss);
    const double both =
        seconds.forward + seconds.backward + sums.forward.At(b) + sums.backward.At(b);
    out.pipeline.trip += both;
    if (s + 1 < shape_.stages) {
      const double transfer =
          BoundarySeconds(links, group.node, At(s + 1, replica).node, stage.boundary_bytes);
      if (transfer < kInfinity)
        out.pipeline.trip += transfer;
      else
        out.amiss += 1;
    }
    out.pipeline.period =
        std::max({out.pipeline.period, both, out.pipeline.trip / (shape_.stages - s)});
    const double alone = common_bytes_ + stage.bytes.kept;
    const double each = b * stage.bytes.activations;
    if (alone + each * (shape_.stages - s) <= group.limit) continue;
    const double most = each > 0 ? std::floor((group.limit - alone) / each) : 0;
    if (alone > group.limit || most < 1) out.amiss += (alone + each) / group.limit - 1 + 1e-9;
    out.pipeline.most =
        std::min(out.pipeline.most, std::max<std::int64_t>(1, static_cast<std::int64_t>(most)));
  }
  if (!tables_.Problem().tied) return;
  out.tied = BoundarySeconds(links, At(0, replica).node, At(shape_.stages - 1, replica).node,
                             tables_.Problem().tied_bytes);
  if (out.tied == kInfinity) {
    out.tied = 0;
    out.amiss += 1;
  }
}

void Arrangement::SetWhole(int replica, Replica& out) const {
  const Group& group = At(0, replica);
  const RangeSeconds& lines = SecondsOf(0, group).lines;
  const std::int64_t batch = tables_.Problem().global_batch;
  const TensorLines sums = TensorLinesOf(0, group, out.amiss);
  out.whole.backward_fixed = lines.backward.fixed + sums.backward.fixed;
  out.whole.backward_per_sample = lines.backward.per_sample + sums.backward.per_sample;
  out.whole.fixed = lines.forward.fixed + sums.forward.fixed + out.whole.backward_fixed;
  out.whole.per_sample =
      lines.forward.per_sample + sums.forward.per_sample + out.whole.backward_per_sample;
  const std::int64_t wanted = shape_.micro_batch > 0 ? shape_.micro_batch : batch;
  const RangeBytes& bytes = stages_[0].bytes;
  const std::int64_t fits =
      LargestMicroBatch(tables_.Problem(), bytes, shape_, group.limit, std::min(wanted, batch));
  out.whole.micro_batch = shape_.micro_batch > 0 ? wanted : std::max<std::int64_t>(fits, 1);
  // A batch smaller than a micro-batch is not limited by memory if all of it fits.
  out.whole.fits =
      fits == std::min(wanted, batch) ? out.whole.micro_batch : std::max<std::int64_t>(fits, 1);
  const std::int64_t least = InMicroBatches() ? wanted : 1;
  if (fits < least)
    out.amiss += (tables_.Problem().CommonBytes(shape_.recompute, least, shape_.tensor) +
                  bytes.kept + static_cast<double>(least) * bytes.activations) /
                     group.limit -
                 1 + 1e-9;
  const double seconds = out.whole.Seconds(wanted);
  out.pipeline = {seconds, seconds, batch};
}

double Arrangement::ShareSamples() {
  const std::int64_t batch = tables_.Problem().global_batch;
  if (InMicroBatches()) {
    pipelines_.clear();
    for (const Replica& replica : replicas_) pipelines_.push_back(replica.pipeline);
    const std::int64_t all = batch / shape_.micro_batch;
    if (ShareOut(std::span<const PipelineReplica>(pipelines_), all, counts_)) return 0;
    std::int64_t can = 0;
    for (const Replica& replica : replicas_) can += std::min(replica.pipeline.most, all);
    return 1 - static_cast<double>(can) / static_cast<double>(all) + 1e-9;
  }
  wholes_.clear();
  for (const Replica& replica : replicas_) wholes_.push_back(replica.whole);
  if (!ShareOut(std::span<const WholeReplica>(wholes_), batch, counts_)) return 1;
  return 0;
}

double Arrangement::ReplicaSeconds(int replica) const {
  const std::int64_t count = counts_[Index(replica)];
  const Replica& known = replicas_[Index(replica)];
  if (!InMicroBatches()) return known.whole.Seconds(count);
  return known.pipeline.trip + static_cast<double>(count - 1) * known.pipeline.period;
}

double Arrangement::Rescore() {
  double amiss = 0, tied = 0;
  for (const Replica& replica : replicas_) {
    amiss += replica.amiss;
    tied = std::max(tied, replica.tied);
  }
  for (const Stage& stage : stages_) amiss += stage.amiss;
  if (amiss <= 0) amiss = ShareSamples();
  if (amiss > 0) return score_ = kImpossible * (1 + amiss);
  double slowest = -1, exchange = -1, slowing = 0;
  double hidden = kInfinity;
  for (int d = 0; d < shape_.data; ++d) {
    const double seconds = ReplicaSeconds(d);
    if (seconds > slowest) slowest = seconds, slowest_replica_ = d;
    if (shape_.stages == 1 && shape_.data > 1)
      hidden =
          std::min(hidden, replicas_[Index(d)].whole.LastBackward(
                               counts_[Index(d)] * (InMicroBatches() ? shape_.micro_batch : 1)));
  }
  for (int s = 0; s < shape_.stages; ++s) {
    const Stage& stage = stages_[Index(s)];
    double seconds = stage.update;
    if (shape_.data > 1) {
      const bool after = tables_.Problem().exchange_after;
      const double behind = (shape_.stages == 1 ? hidden : stage.hidden) + stage.slowing;
      seconds += stage.compression +
                 (after ? stage.exchange : std::max(stage.exchange - behind, stage.first));
      slowing += after ? 0 : stage.slowing;
    }
    if (seconds > exchange) exchange = seconds, slowest_stage_ = s;
  }
  return score_ = slowest + slowing + exchange + tied;
}

double Arrangement::Polish() {
  if (InMicroBatches() || shape_.data == 1 || score_ >= kImpossible ||
      tables_.Problem().exchange_after)
    return score_;
  const Stage& stage = stages_.front();
  const double both = ShareBeside({stage.exchange, stage.first + stage.slowing}, wholes_, counts_);
  return score_ = std::min(score_, both + stage.compression + stage.update);
}

void Arrangement::Save(bool all, std::vector<int> stages, std::vector<int> replicas) {
  saved_.placement = placement_;
  saved_.all = all;
  saved_.score = score_;
  saved_.slowest_replica = slowest_replica_;
  saved_.slowest_stage = slowest_stage_;
  if (all) {
    saved_.seconds = seconds_;
    saved_.stages = stages_;
    saved_.replicas = replicas_;
    return;
  }
  saved_.stages.clear();
  saved_.replicas.clear();
  for (int s : stages) saved_.stages.push_back(stages_[Index(s)]);
  for (int d : replicas) saved_.replicas.push_back(replicas_[Index(d)]);
  saved_.changed_stages = std::move(stages);
  saved_.changed_replicas = std::move(replicas);
}

void Arrangement::Undo() {
  std::swap(placement_, saved_.placement);
  score_ = saved_.score;
  slowest_replica_ = saved_.slowest_replica;
  slowest_stage_ = saved_.slowest_stage;
  if (saved_.all) {
    std::swap(seconds_, saved_.seconds);
    std::swap(stages_, saved_.stages);
    std::swap(replicas_, saved_.replicas);
    return;
  }
  // In reverse, so that a replica that was saved twice gets its oldest state.
  for (std::size_t i = saved_.stages.size(); i-- > 0;)
    stages_[Index(saved_.changed_stages[i])] = saved_.stages[i];
  for (std::size_t i = saved_.replicas.size(); i-- > 0;)
    replicas_[Index(saved_.changed_replicas[i])] = saved_.replicas[i];
}

double Arrangement::Swap(int place, int other) {
  const int stage = place / shape_.data, replica = place % shape_.data;
  const int other_stage = other / shape_.data, other_replica = other % shape_.data;
  Save(false, {stage, other_stage}, {replica, other_replica});
  std::swap(placement_.groups[Index(place)], placement_.groups[Index(other)]);
  // A swap within a stage keeps its members; a swap within a replica changes its shares.
  if (stage != other_stage) {
    SetMembers(stage);
    SetMembers(other_stage);
  }
  SetReplica(replica);
  if (replica != other_replica) SetReplica(other_replica);
  return Rescore();
}

double Arrangement::Replace(int place, int group) {
  const int stage = place / shape_.data, replica = place % shape_.data;
  Save(false, {stage}, {replica});
  placement_.groups[Index(place)] = group;
  SetMembers(stage);
  SetReplica(replica);
  return Rescore();
}

double Arrangement::MoveCut(int boundary, int layer) {
  Save(true, {}, {});
  placement_.cut[Index(boundary)] = layer;
  for (int s : {boundary - 1, boundary}) {
    SetLayers(s);
    SetMembers(s);
  }
  for (int d = 0; d < shape_.data; ++d) SetReplica(d);
  return Rescore();
}

double Arrangement::SetCuts(const std::vector<int>& cut) {
  Save(true, {}, {});
  placement_.cut = cut;
  for (int s = 0; s < shape_.stages; ++s) {
    SetLayers(s);
    SetMembers(s);
  }
  for (int d = 0; d < shape_.data; ++d) SetReplica(d);
  return Rescore();
}

double Arrangement::SwapStages(int stage, int other) {
  Save(true, {}, {});
  for (int d = 0; d < shape_.data; ++d)
    std::swap(placement_.groups[Index(stage * shape_.data + d)],
              placement_.groups[Index(other * shape_.data + d)]);
  SetMembers(stage);
  SetMembers(other);
  for (int d = 0; d < shape_.data; ++d) SetReplica(d);
  return Rescore();
}

Layout Arrangement::ToLayout() const {
  Layout layout;
  layout.data = shape_.data;
  layout.tensor = shape_.tensor;
  layout.recompute = shape_.recompute;
  layout.shard = shape_.shard;
  layout.cut = placement_.cut;
  for (int group : placement_.groups)
    for (int device : groups_[Index(group)].devices) layout.devices.push_back(device);
  for (int d = 0; d < shape_.data; ++d) {
    ReplicaShare share{counts_[Index(d)], 1};
    if (!InMicroBatches()) {
      const std::int64_t most = replicas_[Index(d)].whole.micro_batch;
      const std::int64_t batches = (share.samples + most - 1) / most;
      share.micro_batch = (share.samples + batches - 1) / batches;
    } else {
      share.samples *= shape_.micro_batch;
      share.micro_batch = shape_.micro_batch;
    }
    layout.shares.push_back(share);
  }
  layout.compressed.assign(tables_.Problem().layers.size(), false);
  for (int s = 0; s < shape_.stages; ++s) {
    std::vector<int> nodes;
    for (int d = 0; d < shape_.data; ++d) nodes.push_back(At(s, d).node);
    layout.rings.push_back(tables_.Rings().Order(nodes));
    const RingSpeed speed = SpeedOfStage(tables_.Problem(), layout, s);
    for (int l = placement_.cut[Index(s)]; l < placement_.cut[Index(s) + 1]; ++l)
      layout.compressed[Index(l)] = Compresses(tables_.Problem(), l, shape_.data, speed);
  }
  return layout;
}

}  // namespace adaptive_train
