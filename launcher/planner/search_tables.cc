#include "launcher/planner/search_tables.h"

#include <algorithm>
#include <bit>

#include "core/unit_tree.h"

namespace adaptive_train {
namespace {

void Append(std::vector<Line>& sums, const Line& a, double factor, const Line& b, double b_factor) {
  const Line& last = sums.back();
  sums.push_back({last.fixed + factor * a.fixed + b_factor * b.fixed,
                  last.per_sample + factor * a.per_sample + b_factor * b.per_sample});
}

void Append(std::vector<double>& sums, double value) { sums.push_back(sums.back() + value); }

template <class Number>
Number Between(const std::vector<Number>& sums, int begin, int end) {
  return sums[static_cast<std::size_t>(end)] - sums[static_cast<std::size_t>(begin)];
}

Line Less(const Line& high, const Line& low) {
  return {high.fixed - low.fixed, high.per_sample - low.per_sample};
}

Line Between(const std::vector<Line>& sums, int begin, int end) {
  return Less(sums[static_cast<std::size_t>(end)], sums[static_cast<std::size_t>(begin)]);
}

RankSums Less(const RankSums& high, const RankSums& low) {
  return {Less(high.count, low.count), high.bytes - low.bytes,
          high.bytes_per_rank - low.bytes_per_rank};
}

}  // namespace

LayerSums::LayerSums(const PlanProblem& problem, int tensor, Recompute recompute)
    : problem_(problem),
      tensor_(tensor),
      snapshot_share_(problem.snapshot_share),
      passing_gradients_(problem.PassingGradientBytes(tensor)),
      on_their_way_(problem.OnTheirWayShare()),
      feedback_copies_(problem.feedback_copies),
      sharded_copies_(problem.ExchangeCopies(1, 2)) {
  const double again = problem.recompute_share[static_cast<std::size_t>(recompute)];
  for (std::vector<double>* sums : {&parameters_, &gradients_, &optimizer_, &activations_})
    sums->push_back(0);
  tensor_sums_.emplace_back();
  for (const ProblemLayer& layer : problem.layers) {
    const double part = layer.PartOfParameters(tensor);
    Append(parameters_, part * layer.parameter_bytes);
    Append(gradients_, part * layer.gradient_bytes);
    Append(optimizer_, part * layer.optimizer_bytes);
    Append(activations_, layer.ActivationBytes(static_cast<std::size_t>(recompute), tensor));
    tensor_sums_.push_back(tensor_sums_.back());
    tensor_sums_.back().forward += layer.ForwardSums(tensor);
    tensor_sums_.back().backward += layer.BackwardSums(static_cast<std::size_t>(recompute), tensor);
  }
  for (const DeviceKind& kind : problem.kinds) {
    KindSums sums{{Line{}}, {Line{}}, {0.0}};
    for (std::size_t l = 0; l < problem.layers.size(); ++l) {
      const double part = problem.layers[l].PartOfWork(tensor);
      const LayerSeconds& seconds = kind.layers[l];
      Append(sums.forward, seconds.forward, part, {}, 0);
      Append(sums.backward, seconds.backward, part, seconds.forward, part * again);
      Append(sums.update, problem.layers[l].PartOfParameters(tensor) * seconds.update);
    }
    kinds_.push_back(std::move(sums));
  }
}

RangeSeconds LayerSums::Seconds(int kind, int begin, int end) const {
  const KindSums& sums = kinds_[static_cast<std::size_t>(kind)];
  return {Between(sums.forward, begin, end), Between(sums.backward, begin, end),
          Between(sums.update, begin, end)};
}

/// As of the largest share that a replica can have, wherever it begins.
double LayerSums::UnitBytes(const Shape& shape, int begin, int end, double gradients) const {
  if (!problem_.InMicroBatches(1, shape.micro_batch)) return 0;
  const std::int64_t units = problem_.Shared(shape.stages, shape.micro_batch);
  const std::int64_t kept = shape.data == 1
                                ? std::bit_width(static_cast<std::uint64_t>(units)) - 1
                                : MostKeptOfAny(std::max<std::int64_t>(1, units - shape.data + 1));
  const bool last = end == static_cast<int>(problem_.layers.size());
  const int stage = begin == 0 ? 0 : last ? shape.stages - 1 : -1;
  return problem_.UnitBytes(stage, shape.stages, shape.tensor, shape.data, gradients, kept);
}

RangeBytes LayerSums::Bytes(const Shape& shape, int begin, int end) const {
  const double data = shape.data;
  const double whole = Between(gradients_, begin, end);
  const double gradients =
      shape.shard == 2 && !problem_.whole_micro_batches
          ? ShardedGradientBytes(whole, shape.data, passing_gradients_, on_their_way_)
          : whole;
  const double copies = shape.data == 1    ? 0
                        : shape.shard == 0 ? 1 / data + feedback_copies_
                                           : sharded_copies_;
  return {gradients + Between(parameters_, begin, end) * (1 + snapshot_share_ / data) +
              whole * copies + UnitBytes(shape, begin, end, whole) +
              Between(optimizer_, begin, end) * (shape.shard >= 1 ? 1 / data : 1),
          Between(activations_, begin, end)};
}

RangeSums LayerSums::Sums(int begin, int end) const {
  if (tensor_ == 1) return {};
  const RangeSums& high = tensor_sums_[static_cast<std::size_t>(end)];
  const RangeSums& low = tensor_sums_[static_cast<std::size_t>(begin)];
  return {Less(high.forward, low.forward), Less(high.backward, low.backward)};
}

SearchTables::SearchTables(const PlanProblem& problem) : problem_(problem), rings_(problem.links) {
  for (const ProblemDevice& device : problem.devices) {
    auto same = std::find_if(classes_.begin(), classes_.end(), [&](const DeviceClass& known) {
      return known.kind == device.kind && known.standing == device.standing;
    });
    if (same == classes_.end()) same = classes_.insert(same, {device.kind, device.standing});
    class_of_.push_back(static_cast<int>(same - classes_.begin()));
    limit_.push_back(kMemoryShare * device.memory_bytes);
  }
  for (const DeviceClass& known : classes_) {
    double seconds = 0;
    for (const LayerSeconds& layer : problem.kinds[static_cast<std::size_t>(known.kind)].layers)
      seconds += layer.forward.At(1) + layer.backward.At(1);
    slowness_.push_back(seconds / known.standing);
  }
}

double SearchTables::TransferPerByte(int device_class) const {
  const DeviceClass& known = classes_[static_cast<std::size_t>(device_class)];
  return problem_.kinds[static_cast<std::size_t>(known.kind)].transfer_s_per_byte / known.standing;
}

const LayerSums& SearchTables::Sums(int tensor, Recompute recompute) {
  const std::pair key{tensor, recompute};
  auto found = sums_.find(key);
  if (found == sums_.end())
    found = sums_.emplace(key, LayerSums(problem_, tensor, recompute)).first;
  return found->second;
}

std::int64_t LargestMicroBatch(const PlanProblem& problem, const RangeBytes& bytes,
                               const Shape& shape, double limit, std::int64_t most) {
  std::int64_t fits = 0, too_large = most + 1;
  while (too_large - fits > 1) {
    const std::int64_t middle = fits + (too_large - fits) / 2;
    const double need = problem.CommonBytes(shape.recompute, middle, shape.tensor) + bytes.kept +
                        static_cast<double>(middle) * bytes.activations;
    (need <= limit ? fits : too_large) = middle;
  }
  return fits;
}

}  // namespace adaptive_train
