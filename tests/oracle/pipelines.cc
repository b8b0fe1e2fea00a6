#include "tests/oracle/pipelines.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>

namespace adaptive_train::oracle {
namespace {

constexpr std::int64_t kAnyNumber = std::numeric_limits<std::int64_t>::max();

}  // namespace

PipelineSearch::PipelineSearch(const PlanProblem& problem, const Groups& groups,
                               const StageTimes& times, Exchanges& exchanges,
                               const PipelineFamily& family, std::optional<Best>& best)
    : problem_(problem),
      groups_(groups),
      times_(times),
      exchanges_(exchanges),
      family_(family),
      best_(best),
      micro_batches_(problem.global_batch / family.micro_batch),
      layers_(static_cast<int>(problem.layers.size())) {}

void PipelineSearch::Run(std::size_t most_labels) {
  if (micro_batches_ < family_.data) return;
  Label nothing;
  nothing.most.fill(kAnyNumber);
  nothing.first_layer = layers_;
  labels_ = {nothing};
  State start;
  start.first_layer = layers_;
  start.labels = {0};
  States states{{0, start}};
  for (int stage = family_.stages - 1; stage >= 0; --stage) {
    next_.clear();
    for (const auto& [key, state] : states) Expand(state, stage);
    Narrow(most_labels);
    states.swap(next_);
  }
}

void PipelineSearch::Expand(const State& state, int stage) {
  const int least_first = stage, most_first = stage == 0 ? 0 : state.first_layer - 1;
  for (int first = least_first; first <= most_first; ++first) {
    std::vector<int> members;
    PlaceReplicas(state, stage, {first, state.first_layer}, members, state.used);
  }
}

void PipelineSearch::PlaceReplicas(const State& state, int stage, LayerRange range,
                                   std::vector<int>& members, DeviceSet used) {
  if (static_cast<int>(members.size()) == family_.data) {
    AddStage(state, stage, range, members, used);
    return;
  }
  for (int group = 0; group < groups_.size(); ++group) {
    if (!groups_.IsFirstFree(group, used)) continue;
    // Replicas are interchangeable until their first group is placed.
    if (stage == family_.stages - 1 && !members.empty() &&
        groups_[group].likeness < groups_[members.back()].likeness)
      continue;
    members.push_back(group);
    PlaceReplicas(state, stage, range, members, used | groups_[group].set);
    members.pop_back();
  }
}

void PipelineSearch::AddStage(const State& state, int stage, LayerRange range,
                              const std::vector<int>& members, DeviceSet used) {
  PerReplica<double> own{};
  PerReplica<std::int64_t> most{};
  PerReplica<int> last_groups = state.last_groups;
  Label added;
  added.first_layer = range.first;
  double backward = std::numeric_limits<double>::infinity();
  for (std::size_t replica = 0; replica < members.size(); ++replica) {
    const int group = members[replica];
    most[replica] = MostMicroBatches(group, range, stage);
    if (most[replica] == 0) return;
    own[replica] = times_.Both(group, range);
    backward = std::min(backward, times_.Backward(group, range));
    added.groups[replica] = group;
  }
  const StageExchange& exchange = exchanges_.Of(members, range);
  const double exposed = exchange.gradients.Exposed(backward) + exchange.update;
  const bool last = stage == family_.stages - 1;
  if (last) last_groups = added.groups;
  const double boundary = static_cast<double>(family_.micro_batch) *
                          problem_.layers[static_cast<std::size_t>(range.end - 1)].boundary_bytes;
  PerReplica<double> step = own;
  for (std::size_t replica = 0; replica < members.size() && !last; ++replica)
    step[replica] += ThereAndBack(problem_, groups_[members[replica]].node,
                                  groups_[state.groups[replica]].node, boundary);
  for (const int parent : state.labels) {
    const Label& behind = labels_[static_cast<std::size_t>(parent)];
    Label label = added;
    label.parent = parent;
    for (std::size_t replica = 0; replica < members.size(); ++replica) {
      label.round_trip[replica] = behind.round_trip[replica] + step[replica];
      label.period[replica] = std::max({behind.period[replica], own[replica],
                                        label.round_trip[replica] / (family_.stages - stage)});
      label.most[replica] = std::min(behind.most[replica], most[replica]);
    }
    label.exchange = std::max(behind.exchange, exposed);
    label.slowing = behind.slowing + exchange.gradients.slowing;
    label.bound = Bound(label, stage, used);
    if (!std::isfinite(label.bound) || (best_ && label.bound >= best_->step)) continue;
    if (stage == 0) {
      Finish(label, last_groups);
    } else {
      State target;
      target.last_groups = last_groups;
      Insert(target, label, members, used);
    }
  }
}

void PipelineSearch::Insert(const State& state, const Label& label, const std::vector<int>& members,
                            DeviceSet used) {
  // What the first and the last stage say to each other depends on the last stage's place.
  const bool remember_last = problem_.tied && family_.stages > 2;
  std::uint64_t key = used << 5 | static_cast<std::uint64_t>(label.first_layer);
  for (std::size_t replica = 0; replica < members.size(); ++replica) {
    key = key << 6 | static_cast<std::uint64_t>(label.groups[replica]);
    if (remember_last) key = key << 6 | static_cast<std::uint64_t>(state.last_groups[replica]);
  }
  State& target = next_[key];
  if (target.labels.empty()) {
    target.used = used;
    target.first_layer = label.first_layer;
    target.groups = label.groups;
    target.last_groups = state.last_groups;
  }
  std::vector<int>& front = target.labels;
  for (const int other : front)
    if (Dominates(labels_[static_cast<std::size_t>(other)], label)) return;
  std::erase_if(
      front, [&](int other) { return Dominates(label, labels_[static_cast<std::size_t>(other)]); });
  front.push_back(static_cast<int>(labels_.size()));
  labels_.push_back(label);
}

bool PipelineSearch::Dominates(const Label& one, const Label& other) const {
  if (one.exchange > other.exchange || one.slowing > other.slowing) return false;
  for (std::size_t replica = 0; replica < static_cast<std::size_t>(family_.data); ++replica)
    if (one.round_trip[replica] > other.round_trip[replica] ||
        one.period[replica] > other.period[replica] || one.most[replica] < other.most[replica])
      return false;
  return true;
}

double PipelineSearch::Bound(const Label& label, int stage, DeviceSet used) const {
  const double before = stage == 0 ? 0 : times_.LeastBefore(label.first_layer, used);
  double slowest = 0, started = 0, rate = 0;
  for (std::size_t replica = 0; replica < static_cast<std::size_t>(family_.data); ++replica) {
    const double round_trip = label.round_trip[replica] + before;
    double period = std::max(label.period[replica], round_trip / family_.stages);
    if (stage > 0) period = std::max(period, before / stage);
    slowest = std::max(slowest, round_trip);
    started += round_trip / period - 1;
    rate += 1 / period;
  }
  // Fractions of micro-batches, such that all replicas end at once.
  const double shared = (static_cast<double>(micro_batches_) + started) / rate;
  return std::max(slowest, shared) * (1 - 1e-12) + label.slowing + label.exchange;
}

bool PipelineSearch::ShareOut(const Label& label, PerReplica<std::int64_t>& micro_batches,
                              double& slowest) const {
  const auto data = static_cast<std::size_t>(family_.data);
  const auto time = [&](std::size_t replica, std::int64_t count) {
    return label.round_trip[replica] + static_cast<double>(count - 1) * label.period[replica];
  };
  micro_batches.fill(1);
  for (std::int64_t left = micro_batches_ - family_.data; left > 0; --left) {
    std::size_t soonest = data;
    for (std::size_t replica = 0; replica < data; ++replica)
      if (micro_batches[replica] < label.most[replica] &&
          (soonest == data ||
           time(replica, micro_batches[replica] + 1) < time(soonest, micro_batches[soonest] + 1)))
        soonest = replica;
    if (soonest == data) return false;
    ++micro_batches[soonest];
  }
  slowest = 0;
  for (std::size_t replica = 0; replica < data; ++replica)
    slowest = std::max(slowest, time(replica, micro_batches[replica]));
  return true;
}

void PipelineSearch::Finish(const Label& label, const PerReplica<int>& last_groups) {
  PerReplica<std::int64_t> micro_batches{};
  double slowest = 0;
  if (!ShareOut(label, micro_batches, slowest)) return;
  double tied = 0;
  for (std::size_t replica = 0; problem_.tied && replica < static_cast<std::size_t>(family_.data);
       ++replica)
    tied = std::max(tied, ThereAndBack(problem_, groups_[label.groups[replica]].node,
                                       groups_[last_groups[replica]].node, problem_.tied_bytes));
  const double step = slowest + label.slowing + label.exchange + tied;
  if (std::isfinite(step) && (!best_ || step < best_->step)) Keep(label, micro_batches, step);
}

void PipelineSearch::Keep(const Label& label, const PerReplica<std::int64_t>& micro_batches,
                          double step) {
  Layout layout;
  layout.data = family_.data;
  layout.tensor = groups_.tensor();
  layout.recompute = family_.recompute;
  layout.shard = family_.shard;
  layout.compressed.resize(problem_.layers.size());
  const Label* at = &label;
  while (at->first_layer < layers_) {
    const Label& behind = labels_[static_cast<std::size_t>(at->parent)];
    const std::vector<int> members(at->groups.begin(), at->groups.begin() + family_.data);
    const LayerRange range{at->first_layer, behind.first_layer};
    layout.cut.push_back(range.first);
    for (const int member : members)
      layout.devices.insert(layout.devices.end(), groups_[member].devices.begin(),
                            groups_[member].devices.end());
    layout.rings.push_back(exchanges_.Ring(members).order);
    const std::vector<bool> compressed = exchanges_.Compressed(members, range);
    for (std::size_t layer = 0; layer < compressed.size(); ++layer)
      if (compressed[layer]) layout.compressed[layer] = true;
    at = &behind;
  }
  layout.cut.push_back(layers_);
  for (std::size_t replica = 0; replica < static_cast<std::size_t>(family_.data); ++replica)
    layout.shares.push_back({micro_batches[replica] * family_.micro_batch, family_.micro_batch});
  best_ = Best{step, layout};
}

std::int64_t PipelineSearch::MostMicroBatches(int group, LayerRange range, int stage) const {
  const MemoryTerms terms = MemoryOfStage(problem_, range,
                                          {family_.data, groups_.tensor(), family_.shard,
                                           family_.stages, family_.recompute, family_.micro_batch});
  const double limit = kMemoryShare * groups_[group].memory_bytes;
  const int most_in_flight = family_.stages - stage;
  for (int in_flight = 1; in_flight <= most_in_flight; ++in_flight)
    if (terms.fixed + in_flight * terms.in_flight > limit) return in_flight - 1;
  return kAnyNumber;
}

void PipelineSearch::Narrow(std::size_t most_labels) {
  std::vector<double> bounds;
  for (const auto& [key, state] : next_)
    for (const int label : state.labels)
      bounds.push_back(labels_[static_cast<std::size_t>(label)].bound);
  if (bounds.size() <= most_labels) return;
  std::nth_element(bounds.begin(), bounds.begin() + static_cast<std::ptrdiff_t>(most_labels),
                   bounds.end());
  const double limit = bounds[most_labels];
  for (auto& [key, state] : next_)
    std::erase_if(state.labels, [&](int label) {
      return labels_[static_cast<std::size_t>(label)].bound > limit;
    });
}

}  // namespace adaptive_train::oracle
