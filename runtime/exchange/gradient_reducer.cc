#include "runtime/exchange/gradient_reducer.h"

#include <time.h>

#include <algorithm>
#include <cassert>
#include <chrono>
#include <limits>
#include <utility>

#include "kernels/allocation_failure.h"
#include "runtime/comm/all_gather.h"
#include "runtime/comm/reduce_scatter.h"

namespace adaptive_train {
namespace {

double ThreadCpuSecondsNow() {
  timespec time{};
  ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

template <class T>
std::unique_ptr<BucketSum<T>> MakeSum(ReducerState<T>& state, std::size_t bucket) {
  if (state.options.trees) return std::make_unique<TreeSum<T>>(state, bucket);
  const auto density = state.policy.DensityOf(state.buckets[bucket].layer);
  assert(!density || state.Feedback());
  if (state.group.Size() == 1 || (!density && !state.options.sharded))
    return std::make_unique<RingSum<T>>(state, bucket);
  if (density && state.policy.sketch)
    return std::make_unique<SketchSum<T>>(state, bucket, *density);
  return std::make_unique<OwnerSum<T>>(state, bucket, density);
}

}  // namespace

template <class T>
GradientReducer<T>::GradientReducer(Group& group, kernels::Device<T>& device,
                                    const ParameterLayout& layout, std::span<float> gradients,
                                    const Options& options)
    : state_(group, device, layout, gradients, options), final_from_(gradients.size()) {
  assert(options.sharded || !options.release);
}

template <class T>
void GradientReducer<T>::Add(std::size_t begin, [[maybe_unused]] std::size_t end) {
  assert(end == final_from_ && begin <= end);
  final_from_ = begin;
  for (; next_ < Buckets().size() && Buckets()[next_].begin >= final_from_; ++next_) {
    if (!IsEarly(Buckets()[next_])) Start(next_);
  }
  for (std::size_t i = over_; i < exchanges_.size(); ++i) {
    while (exchanges_[i].stage != exchanges_[i].last && exchanges_[i].request.Test() &&
           Continue(exchanges_[i], RunningClock::now())) {
    }
  }
}

/// The rank that keeps a residual must be the one that selects from it.
template <class T>
bool GradientReducer<T>::MayGoEarly(std::size_t begin, std::size_t end) const {
  const auto compressed = [&](const GradientBucket& bucket) {
    if (bucket.end <= begin || end <= bucket.begin) return true;
    const auto density = state_.policy.DensityOf(bucket.layer);
    return density && (*density < 1 || state_.policy.format == kernels::ValueFormat::kInt4);
  };
  return state_.group.Size() > 1 && !state_.options.sharded && !state_.NodeFirst() &&
         state_.policy.keep == 1 && std::ranges::all_of(Buckets(), compressed);
}

template <class T>
std::span<float> GradientReducer<T>::AddEarly(std::size_t begin, std::size_t end) {
  assert(MayGoEarly(begin, end) && end <= final_from_ && early_begin_ == early_end_);
  early_begin_ = begin;
  early_end_ = end;
  for (std::size_t i = next_; i < Buckets().size(); ++i)
    if (IsEarly(Buckets()[i])) Start(i);
  return Residuals().subspan(begin, end - begin);
}

template <class T>
void GradientReducer<T>::BeginAnew() {
  next_ = 0;
  final_from_ = state_.gradients.size();
  early_begin_ = early_end_ = 0;
}

template <class T>
void GradientReducer<T>::AddNothing(std::size_t begin, std::size_t end) {
  state_.adds_nothing = true;
  Add(begin, end);
  state_.adds_nothing = false;
}

template <class T>
void GradientReducer<T>::Start(std::size_t bucket) {
  Exchange& exchange =
      exchanges_.emplace_back(Exchange{.bucket = bucket, .sum = MakeSum(state_, bucket)});
  const bool ring = exchange.sum->TakesOwnLane();
  if (ring) {
    exchange.request = exchange.sum->Start({});
  } else if (state_.NodeFirst()) {
    StartInside(exchange);
  } else {
    StartBetween(exchange, state_.group.NextLane(Purpose::kGradient));
  }
}

/// [places], the parts that the ranks of each place own.
template <class T>
std::vector<std::span<float>> GradientReducer<T>::Parts(const GradientBucket& bucket) const {
  std::vector<std::span<float>> parts;
  for (const std::vector<int>& owners : state_.groups.places)
    parts.push_back(state_.Together(bucket, owners));
  return parts;
}

/// A checkpoint from another set of nodes may have given this rank residuals in parts where it does
/// not select: they go to the ranks that do.
template <class T>
void GradientReducer<T>::AddOthersResiduals(std::size_t bucket) {
  const std::span<const float> own = state_.Together(Buckets()[bucket], state_.groups.between);
  const auto own_begin = static_cast<std::size_t>(own.data() - state_.gradients.data());
  const auto add = [&](std::size_t begin, std::size_t end) {
    float* residuals = state_.residuals.data() + begin;
    state_.device.AddInto(static_cast<std::int64_t>(end - begin), residuals,
                          state_.gradients.data() + begin);
    state_.device.Clear(residuals, (end - begin) * sizeof(float));
  };
  add(Buckets()[bucket].begin, own_begin);
  add(own_begin + own.size(), Buckets()[bucket].end);
  state_.kept[bucket].others_restored = false;
}

/// Takes the lanes of all stages at once: all ranks take them in the order of the buckets.
template <class T>
void GradientReducer<T>::StartInside(Exchange& exchange) {
  if (state_.kept[exchange.bucket].others_restored) AddOthersResiduals(exchange.bucket);
  const CollectiveLane inside = state_.group.NextLane(Purpose::kGradient);
  exchange.stage = Stage::kInside;
  exchange.last = state_.options.sharded ? Stage::kBetween : Stage::kOut;
  exchange.between = state_.group.NextLane(Purpose::kGradient);
  exchange.out = state_.group.NextLane(Purpose::kGradient);
  exchange.request = state_.group.Launch(std::make_shared<ReduceScatter>(
      state_.NameOf(inside, exchange.bucket), inside.Among(state_.groups.inside),
      Parts(BucketOf(exchange))));
}

template <class T>
void GradientReducer<T>::StartBetween(Exchange& exchange, const CollectiveLane& lane) {
  const double from = ThreadCpuSecondsNow();
  state_.counts.added +=
      static_cast<std::int64_t>(state_.Together(BucketOf(exchange), state_.Owners()).size());
  exchange.request = exchange.sum->Start(lane.Among(state_.Owners()));
  state_.counts.select_cpu_s += ThreadCpuSecondsNow() - from;
}

template <class T>
void GradientReducer<T>::StartOut(Exchange& exchange) {
  std::vector<std::span<std::byte>> parts;
  for (const std::span<float> part : Parts(BucketOf(exchange)))
    parts.push_back(std::as_writable_bytes(part));
  exchange.request = state_.group.Launch(
      std::make_shared<AllGather>(state_.NameOf(exchange.out, exchange.bucket),
                                  exchange.out.Among(state_.groups.inside), std::move(parts)));
}

/// Waits for the exchange's stage and starts the next one. False if there is none, or it failed.
template <class T>
bool GradientReducer<T>::Continue(Exchange& exchange, Deadline deadline) {
  if (exchange.failure) return false;
  if (const auto done = exchange.request.Wait(deadline); !done) {
    exchange.failure = done.error();
    return false;
  }
  if (exchange.stage == exchange.last) {
    if (!std::exchange(exchange.arrived, true)) exchange.sum->Arrive();
    return false;
  }
  const GradientBucket& bucket = BucketOf(exchange);
  if (exchange.stage == Stage::kBetween) {
    exchange.stage = Stage::kOut;
    StartOut(exchange);
    return true;
  }
  exchange.stage = Stage::kBetween;
  if (state_.options.release) {
    const std::span<const float> part = state_.Together(bucket, state_.groups.between);
    const auto begin = static_cast<std::size_t>(part.data() - state_.gradients.data());
    state_.ReleaseAround(bucket, begin, begin + part.size());
  }
  StartBetween(exchange, exchange.between);
  return true;
}

/// Stage by stage, so that one exchange's next stage runs while others are waited for.
template <class T>
tl::expected<void, CommError> GradientReducer<T>::Limit(std::size_t elements, Deadline deadline) {
  std::size_t on_their_way = 0, last = over_;
  for (std::size_t i = over_; i < exchanges_.size(); ++i)
    on_their_way += BucketOf(exchanges_[i]).size();
  for (; last < exchanges_.size() && on_their_way > elements; ++last)
    on_their_way -= BucketOf(exchanges_[last]).size();
  tl::expected<void, CommError> outcome;
  for (const Stage stage : {Stage::kInside, Stage::kBetween, Stage::kOut}) {
    for (std::size_t i = over_; i < (outcome ? last : exchanges_.size()); ++i) {
      Exchange& exchange = exchanges_[i];
      if (exchange.stage > stage) continue;
      Continue(exchange, outcome ? deadline : RunningClock::now());
      if (exchange.failure && outcome) outcome = tl::unexpected(*exchange.failure);
    }
  }
  for (; over_ < last; ++over_) {
    if (state_.options.release && exchanges_[over_].sum->LeavesOthers())
      state_.ReleaseOthers(BucketOf(exchanges_[over_]));
  }
  return outcome;
}

template <class T>
template <class Visit>
void GradientReducer<T>::ForEachOwn(const Visit& visit) {
  std::size_t place = 0;
  for (const GradientBucket& bucket : Buckets()) {
    const GradientChunk own = state_.OwnChunk(bucket);
    visit(own, place);
    place += own.size();
  }
}

template <class T>
tl::expected<void, CommError> GradientReducer<T>::FinishMicroBatch(Deadline deadline) {
  assert(state_.options.release && next_ == Buckets().size());
  auto outcome = Limit(0, deadline);
  if (!outcome) return outcome;
  SettleExchanges(true);
  if (sums_.size() == 0) {
    std::size_t all = 0;
    ForEachOwn([&](const GradientChunk& own, std::size_t /*place*/) { all += own.size(); });
    sums_ = kernels::AllocatedFor("sums of a step's micro-batches",
                                  [&] { return kernels::Buffer<float>(state_.device, all); });
  }
  if (!std::exchange(has_sums_, true)) sums_.Clear();
  ForEachOwn([&](const GradientChunk& own, std::size_t place) {
    state_.device.AddInto(static_cast<std::int64_t>(own.size()),
                          state_.gradients.data() + own.begin, sums_.data() + place);
  });
  state_.device.Release(state_.gradients.data(), state_.gradients.size_bytes());
  BeginAnew();
  return outcome;
}

template <class T>
tl::expected<void, CommError> GradientReducer<T>::Finish(Deadline deadline) {
  assert(next_ == Buckets().size());
  auto outcome = Limit(0, deadline);
  if (has_sums_) {
    ForEachOwn([&](const GradientChunk& own, std::size_t place) {
      state_.device.AddInto(static_cast<std::int64_t>(own.size()), sums_.data() + place,
                            state_.gradients.data() + own.begin);
    });
  }
  if (std::exchange(state_.not_finite, false)) {
    const float nan = std::numeric_limits<float>::quiet_NaN();
    ForEachOwn([&](const GradientChunk& own, std::size_t place) {
      if (place == 0 && own.size() > 0)
        state_.device.Scale(1, nan, state_.gradients.data() + own.begin);
    });
  }
  BeginAnew();
  return outcome;
}

template <class T>
void GradientReducer<T>::Settle(bool updated) {
  SettleExchanges(updated);
  if (!updated && state_.Feedback()) {
    TakeBackSums();
    // An early bucket's late gradients may be the reason for the skip. They must not cause a skip
    // of every later step.
    state_.device.ClearNotFinite(static_cast<std::int64_t>(state_.residuals.size()),
                                 state_.residuals.data());
  }
  if (updated && !state_.options.feedback) state_.residuals = {};
  has_sums_ = false;
  const ExchangeCounts counts = std::exchange(state_.counts, {});
  settled_.select_cpu_s = counts.select_cpu_s;
  settled_.unpeeled = counts.unpeeled;
  settled_.density = counts.added == 0
                         ? 1
                         : static_cast<double>(counts.selected) / static_cast<double>(counts.added);
}

/// Sums of earlier micro-batches: their owner keeps them for another attempt.
template <class T>
void GradientReducer<T>::TakeBackSums() {
  if (!has_sums_) return;
  state_.device.ClearNotFinite(static_cast<std::int64_t>(sums_.size()), sums_.data());
  ForEachOwn([&](const GradientChunk& own, std::size_t place) {
    state_.device.AddInto(static_cast<std::int64_t>(own.size()), sums_.data() + place,
                          state_.residuals.data() + own.begin);
  });
  for (auto& kept : state_.kept) kept.holds = true;
}

template <class T>
void GradientReducer<T>::SettleExchanges(bool updated) {
  for (const Exchange& exchange : exchanges_)
    updated ? exchange.sum->Settle() : exchange.sum->TakeBack();
  exchanges_.clear();
  over_ = 0;
}

template <class T>
std::span<float> GradientReducer<T>::ResidualsToTake() {
  assert(state_.group.Size() == 1);
  state_.residuals = kernels::AllocatedFor("residuals of a checkpoint", [&] {
    return kernels::Buffer<float>(state_.device, state_.gradients.size());
  });
  return state_.residuals.span();
}

template <class T>
void GradientReducer<T>::ResidualsRestored() {
  for (auto& kept : state_.kept) {
    kept.holds = state_.Feedback();
    kept.others_restored = state_.Feedback() && state_.NodeFirst();
  }
}

template <class T>
bool GradientReducer<T>::HoldsBack() const {
  return std::ranges::any_of(state_.kept, &ReducerState<T>::Kept::holds);
}

template <class T>
void GradientReducer<T>::ForgetResiduals() {
  state_.residuals.Clear();
  for (auto& kept : state_.kept) kept.holds = false;
}

template <class T>
void GradientReducer<T>::Rescale(float factor) {
  state_.device.Scale(static_cast<std::int64_t>(state_.residuals.size()), factor,
                      state_.residuals.data());
}

template class GradientReducer<float>;
template class GradientReducer<kernels::BFloat16>;
template class GradientReducer<kernels::Float16>;

}  // namespace adaptive_train
