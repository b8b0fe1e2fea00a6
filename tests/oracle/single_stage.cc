#include "tests/oracle/single_stage.h"

#include <algorithm>
#include <cmath>
#include <cstddef>

namespace adaptive_train::oracle {

SingleStageSearch::SingleStageSearch(const PlanProblem& problem, const Groups& groups,
                                     Exchanges& exchanges, int data, int shard, Recompute recompute,
                                     std::int64_t requested, std::optional<Best>& best)
    : problem_(problem),
      groups_(groups),
      exchanges_(exchanges),
      data_(data),
      shard_(shard),
      recompute_(recompute),
      requested_(requested),
      best_(best) {
  for (int group = 0; group < groups.size(); ++group) options_.push_back(OptionsOf(group));
}

void SingleStageSearch::Run() {
  if (problem_.global_batch >= data_) PlaceReplicas(0, 0);
}

void SingleStageSearch::PlaceReplicas(int first, DeviceSet used) {
  if (static_cast<int>(members_.size()) == data_) {
    std::vector<int> likenesses;
    for (const int member : members_) likenesses.push_back(groups_[member].likeness);
    std::sort(likenesses.begin(), likenesses.end());
    if (seen_.insert(likenesses).second) ShareOut();
    return;
  }
  for (int group = first; group < groups_.size(); ++group) {
    if (groups_[group].set & used) continue;
    members_.push_back(group);
    PlaceReplicas(group + 1, used | groups_[group].set);
    members_.pop_back();
  }
}

void SingleStageSearch::ShareOut() {
  const auto batch = static_cast<std::size_t>(problem_.global_batch);
  const StageExchange& exchange = exchanges_.Of(members_, All());
  const double always = exchange.gradients.slowing + exchange.update;
  const double least_exchange =
      exchange.gradients.Exposed(std::numeric_limits<double>::infinity()) + always;
  std::vector<std::vector<Label>> labels(batch + 1);
  labels[0].push_back({0, std::numeric_limits<double>::infinity(), {}});
  for (const int member : members_) {
    std::vector<std::vector<Label>> next(batch + 1);
    for (std::size_t given = 0; given < batch; ++given)
      for (const Option& option : options_[static_cast<std::size_t>(member)])
        if (option.fits && given + static_cast<std::size_t>(option.share.samples) <= batch &&
            (!best_ || option.seconds + least_exchange < best_->step))
          Extend(labels[given], static_cast<std::int64_t>(given), option, next);
    labels.swap(next);
  }
  for (const Label& label : labels[batch]) {
    const double step = label.slowest + exchange.gradients.Exposed(label.last_backward) + always;
    if (!std::isfinite(step) || (best_ && step >= best_->step)) continue;
    best_ = Best{step, {}};
    Keep(label);
  }
}

void SingleStageSearch::Extend(const std::vector<Label>& labels, std::int64_t given,
                               const Option& option, std::vector<std::vector<Label>>& next) const {
  std::vector<Label>& front = next[static_cast<std::size_t>(given + option.share.samples)];
  for (const Label& label : labels) {
    const double slowest = std::max(label.slowest, option.seconds);
    const double last_backward = std::min(label.last_backward, option.last_backward);
    const bool worse = std::any_of(front.begin(), front.end(), [&](const Label& other) {
      return other.slowest <= slowest && other.last_backward >= last_backward;
    });
    if (worse) continue;
    std::erase_if(front, [&](const Label& other) {
      return other.slowest >= slowest && other.last_backward <= last_backward;
    });
    front.push_back({slowest, last_backward, label.shares});
    front.back().shares.push_back(option.share);
  }
}

std::vector<SingleStageSearch::Option> SingleStageSearch::OptionsOf(int group) const {
  const std::int64_t largest = requested_ > 0
                                   ? requested_
                                   : LargestMicroBatch(problem_, groups_[group].memory_bytes, data_,
                                                       groups_.tensor(), shard_, recompute_);
  std::vector<Option> options;
  for (std::int64_t samples = 1; samples <= problem_.global_batch && largest > 0; ++samples)
    options.push_back(OptionOf(group, SingleStageShare(samples, largest)));
  return options;
}

SingleStageSearch::Option SingleStageSearch::OptionOf(int group, const ReplicaShare& share) const {
  const auto seconds = [&](double samples, bool backward) {
    double slowest = 0;
    for (const int device : groups_[group].devices) {
      double sum = 0;
      for (int layer = 0; layer < All().end; ++layer)
        sum += backward ? BackwardOf(problem_, device, layer, groups_.tensor(), recompute_, samples)
                        : ForwardOf(problem_, device, layer, groups_.tensor(), samples);
      slowest = std::max(slowest, sum);
    }
    return slowest;
  };
  const std::int64_t before_last = share.MicroBatches() - 1;
  const auto whole = static_cast<double>(share.micro_batch);
  const auto last = static_cast<double>(share.samples - before_last * share.micro_batch);
  Option option;
  option.share = share;
  option.last_backward = seconds(last, true);
  option.seconds =
      seconds(last, false) + option.last_backward +
      static_cast<double>(before_last) * (seconds(whole, false) + seconds(whole, true));
  const MemoryTerms terms = MemoryOfStage(
      problem_, All(), {data_, groups_.tensor(), shard_, 1, recompute_, share.micro_batch});
  option.fits = std::isfinite(option.seconds) &&
                terms.fixed + terms.in_flight <= kMemoryShare * groups_[group].memory_bytes;
  return option;
}

void SingleStageSearch::Keep(const Label& label) {
  Layout& layout = best_->layout;
  layout.data = data_;
  layout.tensor = groups_.tensor();
  layout.recompute = recompute_;
  layout.shard = shard_;
  layout.cut = {0, All().end};
  for (const int member : members_)
    layout.devices.insert(layout.devices.end(), groups_[member].devices.begin(),
                          groups_[member].devices.end());
  layout.shares = label.shares;
  layout.rings = {exchanges_.Ring(members_).order};
  layout.compressed = exchanges_.Compressed(members_, All());
}

}  // namespace adaptive_train::oracle
