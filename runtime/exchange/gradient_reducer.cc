#include "runtime/exchange/gradient_reducer.h"

#include <time.h>

#include <fmt/format.h>

#include <algorithm>
#include <cassert>
#include <chrono>
#include <cmath>
#include <utility>

#include "runtime/comm/all_gather.h"
#include "runtime/comm/reduce_scatter.h"

namespace adaptive_train {
namespace {

double ThreadCpuSecondsNow() {
  timespec time{};
  ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

}  // namespace

template <class T>
GradientReducer<T>::GradientReducer(Communicator& communicator, kernels::Device<T>& device,
                                    const ParameterLayout& layout, std::span<float> gradients,
                                    const Options& options)
    : communicator_(communicator),
      device_(device),
      gradients_(gradients),
      sharded_(options.sharded),
      release_(options.release),
      groups_(RankGroups::Of(options.nodes, communicator.Rank(), communicator.Size())),
      buckets_(CutBuckets(layout, groups_.all, options.bucket_elements)),
      residuals_(device, options.feedback ? gradients.size() : 0),
      selection_(device, gradients, residuals_.span()),
      holds_(buckets_.size(), false),
      others_restored_(buckets_.size(), false),
      owner_lanes_(buckets_.size()),
      sketch_lanes_(buckets_.size()),
      final_from_(gradients.size()) {
  assert(sharded_ || !release_);
  if (options.feedback) residuals_.Clear();
}

template <class T>
std::string GradientReducer<T>::NameOf(const CollectiveLane& lane, std::size_t bucket) const {
  return fmt::format("exchange {} (gradient bucket {})", lane.sequence, bucket);
}

template <class T>
void GradientReducer<T>::Add(std::size_t begin, [[maybe_unused]] std::size_t end) {
  assert(end == final_from_ && begin <= end);
  final_from_ = begin;
  for (; next_ < buckets_.size() && buckets_[next_].begin >= final_from_; ++next_) {
    if (!IsEarly(buckets_[next_])) Start(next_);
  }
  for (std::size_t i = over_; i < exchanges_.size(); ++i) {
    while (exchanges_[i].stage != exchanges_[i].last && exchanges_[i].request.Test() &&
           Continue(exchanges_[i], std::chrono::steady_clock::now())) {
    }
  }
}

/// What is held back must be selected from by the rank that holds it.
template <class T>
bool GradientReducer<T>::MayGoEarly(std::size_t begin, std::size_t end) const {
  const auto compressed = [&](const GradientBucket& bucket) {
    if (bucket.end <= begin || end <= bucket.begin) return true;
    const auto density = policy_.DensityOf(bucket.layer);
    return density && *density < 1;
  };
  return communicator_.Size() > 1 && !sharded_ && !NodeFirst() && policy_.keep == 1 &&
         std::ranges::all_of(buckets_, compressed);
}

template <class T>
std::span<float> GradientReducer<T>::AddEarly(std::size_t begin, std::size_t end) {
  assert(MayGoEarly(begin, end) && end <= final_from_ && early_begin_ == early_end_);
  early_begin_ = begin;
  early_end_ = end;
  for (std::size_t i = next_; i < buckets_.size(); ++i)
    if (IsEarly(buckets_[i])) Start(i);
  return residuals_.span().subspan(begin, end - begin);
}

template <class T>
void GradientReducer<T>::BeginAnew() {
  next_ = 0;
  final_from_ = gradients_.size();
  early_begin_ = early_end_ = 0;
}

template <class T>
void GradientReducer<T>::AddNothing() {
  nothing_ = true;
  Add(0, gradients_.size());
  nothing_ = false;
}

template <class T>
void GradientReducer<T>::Start(std::size_t bucket) {
  const auto density = policy_.DensityOf(buckets_[bucket].layer);
  if (communicator_.Size() == 1 || (!density && !sharded_)) return StartRing(bucket);
  assert(!density || residuals_.size() == gradients_.size());
  if (NodeFirst()) return StartInside(bucket, density);
  Exchange& exchange = exchanges_.emplace_back(Exchange{.bucket = bucket});
  StartBetween(exchange, communicator_.NextLane(Purpose::kGradient), density);
}

/// What steps before kept back goes with it.
template <class T>
void GradientReducer<T>::StartRing(std::size_t bucket) {
  const std::size_t begin = buckets_[bucket].begin, size = buckets_[bucket].size();
  const std::span<float> gradients = gradients_.subspan(begin, size);
  if (holds_[bucket]) {
    const float* residuals = residuals_.data() + begin;
    for (std::size_t i = 0; i < size; ++i) gradients[i] += residuals[i];
  }
  selected_ += static_cast<std::int64_t>(size);
  added_ += static_cast<std::int64_t>(size);
  exchanges_.push_back({.bucket = bucket,
                        .request = communicator_.AllReduce(Purpose::kGradient, gradients),
                        .whole = true});
}

/// What some owners have of a bucket, whose chunks lie together.
template <class T>
std::span<float> GradientReducer<T>::Together(const GradientBucket& bucket,
                                              const std::vector<int>& owners) const {
  const std::size_t begin = bucket.chunks[static_cast<std::size_t>(owners.front())].begin;
  const std::size_t end = bucket.chunks[static_cast<std::size_t>(owners.back())].end;
  return gradients_.subspan(begin, end - begin);
}

/// [places], what the ranks of each place have.
template <class T>
std::vector<std::span<float>> GradientReducer<T>::Parts(const GradientBucket& bucket) const {
  std::vector<std::span<float>> parts;
  for (const std::vector<int>& owners : groups_.places) parts.push_back(Together(bucket, owners));
  return parts;
}

/// Where this rank selects nothing, a checkpoint that was written by other nodes may have given it
/// residuals: the ranks that do select there get them.
template <class T>
void GradientReducer<T>::AddOthersResiduals(std::size_t bucket) {
  const std::span<const float> own = Together(buckets_[bucket], groups_.between);
  const auto own_begin = static_cast<std::size_t>(own.data() - gradients_.data());
  const auto add = [&](std::size_t begin, std::size_t end) {
    for (std::size_t i = begin; i < end; ++i)
      gradients_[i] += std::exchange(residuals_.data()[i], 0.0f);
  };
  add(buckets_[bucket].begin, own_begin);
  add(own_begin + own.size(), buckets_[bucket].end);
  others_restored_[bucket] = false;
}

/// Takes the lanes of all stages at once: all ranks take them in the order of the buckets.
template <class T>
void GradientReducer<T>::StartInside(std::size_t bucket, std::optional<double> density) {
  if (others_restored_[bucket]) AddOthersResiduals(bucket);
  const CollectiveLane inside = communicator_.NextLane(Purpose::kGradient);
  Exchange& exchange = exchanges_.emplace_back(Exchange{.bucket = bucket});
  exchange.stage = Stage::kInside;
  exchange.last = sharded_ ? Stage::kBetween : Stage::kOut;
  exchange.density = density;
  exchange.between = communicator_.NextLane(Purpose::kGradient);
  exchange.out = communicator_.NextLane(Purpose::kGradient);
  exchange.request = communicator_.Launch(std::make_shared<ReduceScatter>(
      NameOf(inside, bucket), inside.Among(groups_.inside), Parts(buckets_[bucket])));
}

template <class T>
void GradientReducer<T>::StartOut(Exchange& exchange) {
  std::vector<std::span<std::byte>> parts;
  for (const std::span<float> part : Parts(buckets_[exchange.bucket]))
    parts.push_back(std::as_writable_bytes(part));
  exchange.request = communicator_.Launch(std::make_shared<AllGather>(
      NameOf(exchange.out, exchange.bucket), exchange.out.Among(groups_.inside), std::move(parts)));
}

/// Waits for the exchange's stage and starts the next one; false if there is none, or it failed.
template <class T>
bool GradientReducer<T>::Continue(Exchange& exchange, Deadline deadline) {
  if (exchange.failure) return false;
  if (const auto done = exchange.request.Wait(deadline); !done) {
    exchange.failure = done.error();
    return false;
  }
  if (exchange.stage == exchange.last) return false;
  const GradientBucket& bucket = buckets_[exchange.bucket];
  if (exchange.stage == Stage::kBetween) {
    exchange.stage = Stage::kOut;
    StartOut(exchange);
    return true;
  }
  exchange.stage = Stage::kBetween;
  if (release_) {
    const std::span<const float> part = Together(bucket, groups_.between);
    const auto begin = static_cast<std::size_t>(part.data() - gradients_.data());
    ReleaseAround(bucket, begin, begin + part.size());
  }
  StartBetween(exchange, exchange.between, exchange.density);
  return true;
}

template <class T>
void GradientReducer<T>::StartBetween(Exchange& exchange, const CollectiveLane& lane,
                                      std::optional<double> density) {
  const double from = ThreadCpuSecondsNow();
  added_ += static_cast<std::int64_t>(Together(buckets_[exchange.bucket], Owners()).size());
  if (density && policy_.sketch) {
    StartSketch(exchange, lane.Among(Owners()), *density);
  } else {
    StartOwners(exchange, lane.Among(Owners()), density);
  }
  figures_.select_cpu_s += ThreadCpuSecondsNow() - from;
}

template <class T>
void GradientReducer<T>::StartOwners(Exchange& exchange, const CollectiveLane& lane,
                                     std::optional<double> density) {
  const GradientBucket& bucket = buckets_[exchange.bucket];
  const auto format = density ? policy_.format : kernels::ValueFormat::kFloat32;
  OwnerExchangeOrder order;
  bool finite = true;
  order.chunks.bucket = static_cast<std::uint32_t>(lane.sequence);
  order.earlier_lane = std::exchange(owner_lanes_[exchange.bucket], lane.tag);
  for (const int owner : Owners()) {
    const GradientChunk& chunk = bucket.chunks[static_cast<std::size_t>(owner)];
    const SelectedChunk selected = Select(chunk, density.value_or(1), format);
    SparseMessageWriter writer(order.chunks.bucket, format);
    for (std::size_t i = 0; i < selected.pieces.size(); ++i) {
      const SelectedPiece& piece = selected.pieces[i];
      writer.Add(static_cast<std::int64_t>(chunk.pieces[i].size()), piece.bitmap.data(),
                 piece.count, piece.values, piece.smallest);
    }
    if (!selected.finite) writer.NotFinite();
    finite = finite && selected.finite;
    order.chunks.pieces.push_back(chunk.PieceLengths());
    order.messages.push_back(writer.Finish());
  }
  order.format = format;
  order.gather = !sharded_;
  // A skipped step drops what is summed whole, as a ring would, but not what steps before kept
  // back.
  order.keep = residuals_.size() > 0 && (density || holds_[exchange.bucket]);
  order.result = Together(bucket, Owners());
  if (release_) ReleaseOthers(bucket);  // the messages have it
  exchange.whole = !density;
  exchange.owners =
      std::make_shared<OwnerExchange>(NameOf(lane, exchange.bucket), lane, std::move(order));
  holds_[exchange.bucket] = exchange.owners->Order().keep || (!finite && residuals_.size() > 0);
  exchange.request = communicator_.Launch(exchange.owners);
}

template <class T>
void GradientReducer<T>::StartSketch(Exchange& exchange, const CollectiveLane& lane,
                                     double density) {
  const GradientBucket& bucket = buckets_[exchange.bucket];
  SketchExchangeOrder order;
  order.chunks.bucket = static_cast<std::uint32_t>(exchange.bucket);
  order.step = static_cast<std::int64_t>(lane.sequence);
  order.earlier_lane = std::exchange(sketch_lanes_[exchange.bucket], lane.tag);
  constexpr auto kFormat = kernels::ValueFormat::kFloat32;
  for (const int owner : Owners()) {
    const GradientChunk& chunk = bucket.chunks[static_cast<std::size_t>(owner)];
    const SelectedChunk selected = Select(chunk, density, kFormat);
    for (const SelectedPiece& piece : selected.pieces) {
      order.bitmap.insert(order.bitmap.end(), piece.bitmap.begin(), piece.bitmap.end());
      for (std::size_t i = 0; i < static_cast<std::size_t>(piece.count); ++i)
        order.values.push_back(selected.finite ? ValueAt(kFormat, piece.values, i) : 0.0f);
    }
    order.finite = order.finite && selected.finite;
    order.chunks.pieces.push_back(chunk.PieceLengths());
  }
  order.result = Together(bucket, Owners());
  exchange.sketch =
      std::make_shared<SketchExchange>(NameOf(lane, exchange.bucket), lane, std::move(order));
  holds_[exchange.bucket] = true;
  exchange.request = communicator_.Launch(exchange.sketch);
}

template <class T>
SelectedChunk GradientReducer<T>::Select(const GradientChunk& chunk, double density,
                                         kernels::ValueFormat format) {
  // Inside a node the others may have something.
  SelectedChunk selected = nothing_ && !NodeFirst()
                               ? selection_.Nothing(chunk)
                               : selection_.Select(chunk, density, policy_.keep, format);
  selected_ += selected.count;
  return selected;
}

template <class T>
void GradientReducer<T>::ReleaseAround(const GradientBucket& bucket, std::size_t begin,
                                       std::size_t end) {
  const auto release = [&](std::size_t from, std::size_t to) {
    device_.Release(gradients_.data() + from, (to - from) * sizeof(float));
  };
  release(bucket.begin, begin);
  release(end, bucket.end);
}

/// Stage by stage, so that an exchange's next one goes on while others' are waited for.
template <class T>
tl::expected<void, CommError> GradientReducer<T>::Limit(std::size_t elements, Deadline deadline) {
  std::size_t on_their_way = 0, last = over_;
  for (std::size_t i = over_; i < exchanges_.size(); ++i)
    on_their_way += buckets_[exchanges_[i].bucket].size();
  for (; last < exchanges_.size() && on_their_way > elements; ++last)
    on_their_way -= buckets_[exchanges_[last].bucket].size();
  tl::expected<void, CommError> outcome;
  for (const Stage stage : {Stage::kInside, Stage::kBetween, Stage::kOut}) {
    for (std::size_t i = over_; i < (outcome ? last : exchanges_.size()); ++i) {
      Exchange& exchange = exchanges_[i];
      if (exchange.stage > stage) continue;
      Continue(exchange, outcome ? deadline : std::chrono::steady_clock::now());
      if (exchange.failure && outcome) outcome = tl::unexpected(*exchange.failure);
    }
  }
  for (; over_ < last; ++over_) {  // all ranks got a sketch's sums
    if (release_ && exchanges_[over_].sketch) ReleaseOthers(buckets_[exchanges_[over_].bucket]);
  }
  return outcome;
}

template <class T>
tl::expected<void, CommError> GradientReducer<T>::FinishMicroBatch(Deadline deadline) {
  assert(release_ && next_ == buckets_.size());
  auto outcome = Limit(0, deadline);
  if (!outcome) return outcome;
  SettleExchanges(true);
  std::size_t place = 0;
  for (const GradientBucket& bucket : buckets_) {
    const GradientChunk& own = OwnChunk(bucket);
    sums_.resize(std::max(sums_.size(), place + own.size()));
    for (std::size_t i = own.begin; i < own.end; ++i) sums_[place++] += gradients_[i];
  }
  device_.Release(gradients_.data(), gradients_.size_bytes());
  BeginAnew();
  return outcome;
}

template <class T>
tl::expected<void, CommError> GradientReducer<T>::Finish(Deadline deadline) {
  assert(next_ == buckets_.size());
  auto outcome = Limit(0, deadline);
  std::size_t place = 0;
  for (std::size_t b = 0; b < buckets_.size() && !sums_.empty(); ++b) {
    const GradientChunk& own = OwnChunk(buckets_[b]);
    for (std::size_t i = own.begin; i < own.end; ++i) gradients_[i] += sums_[place++];
  }
  BeginAnew();
  return outcome;
}

template <class T>
void GradientReducer<T>::Settle(bool updated) {
  SettleExchanges(updated);
  if (!updated && residuals_.size() > 0) {
    TakeBackSums();
    // What came last of what went early may be the reason for the skip; it must not be that of all
    // steps to come.
    for (float& residual : residuals_.span())
      if (!std::isfinite(residual)) residual = 0;
  }
  sums_.clear();
  settled_ = std::exchange(figures_, {});
  const std::int64_t added = std::exchange(added_, 0), selected = std::exchange(selected_, 0);
  settled_.density = added == 0 ? 1 : static_cast<double>(selected) / static_cast<double>(added);
}

/// Those of micro-batches before the last: their owner has them, and tries again.
template <class T>
void GradientReducer<T>::TakeBackSums() {
  std::size_t place = 0;
  for (std::size_t b = 0; b < buckets_.size() && !sums_.empty(); ++b) {
    const GradientChunk& own = OwnChunk(buckets_[b]);
    for (std::size_t i = own.begin; i < own.end; ++i, ++place)
      if (std::isfinite(sums_[place])) residuals_.data()[i] += sums_[place];
    holds_[b] = true;
  }
}

template <class T>
void GradientReducer<T>::SettleExchanges(bool updated) {
  for (const Exchange& exchange : exchanges_) {
    if (exchange.owners) {
      SettleOwners(buckets_[exchange.bucket], *exchange.owners, updated);
      if (updated && exchange.whole) holds_[exchange.bucket] = false;
    } else if (exchange.sketch) {
      figures_.unpeeled += exchange.sketch->unfinished() ? 1 : 0;
      SettleSketch(buckets_[exchange.bucket], *exchange.sketch, updated);
    } else if (updated && holds_[exchange.bucket]) {
      const GradientBucket& bucket = buckets_[exchange.bucket];
      std::fill_n(residuals_.data() + bucket.begin, bucket.size(), 0.0f);
      holds_[exchange.bucket] = false;
    }
  }
  exchanges_.clear();
  over_ = 0;
}

template <class T>
void GradientReducer<T>::SettleOwners(const GradientBucket& bucket, const OwnerExchange& exchange,
                                      bool updated) {
  if (!exchange.Order().keep) return;
  if (!updated) return TakeBack(bucket, exchange);
  if (!sharded_) KeepRounding(OwnChunk(bucket), exchange);  // an owner's own sum is not rounded
}

/// What of this rank's values was not sent: what fixed point took from them, or where the step was
/// skipped all. Those of a chunk that is not finite are 0 here: they were put back at once.
template <class T>
void GradientReducer<T>::SettleSketch(const GradientBucket& bucket, const SketchExchange& exchange,
                                      bool updated) {
  const SketchExchangeOrder& order = exchange.Order();
  const std::uint64_t* bitmap = order.bitmap.data();
  std::size_t taken = 0;
  for (const int owner : Owners()) {
    for (const GradientPiece& piece : bucket.chunks[static_cast<std::size_t>(owner)].pieces) {
      for (std::size_t i = 0; i < piece.size(); ++i) {
        if ((bitmap[i / 64] >> (i % 64) & 1) == 0) continue;
        const float value = order.values[taken++];
        residuals_.data()[piece.begin + i] +=
            updated ? value - exchange.fixed_point().Sent(value) : value;
      }
      bitmap += BitmapWords(static_cast<std::int64_t>(piece.size()));
    }
  }
}

/// What all ranks got less than the sum.
template <class T>
void GradientReducer<T>::KeepRounding(const GradientChunk& own, const OwnerExchange& exchange) {
  const std::span<const float> sum = exchange.OwnSum();
  const float* got = gradients_.data() + own.begin;
  float* residual = residuals_.data() + own.begin;
  for (std::size_t i = 0; i < sum.size(); ++i) residual[i] += sum[i] - got[i];
}

template <class T>
void GradientReducer<T>::TakeBack(const GradientBucket& bucket, const OwnerExchange& exchange) {
  const OwnerExchangeOrder& order = exchange.Order();
  for (std::size_t i = 0; i < Owners().size(); ++i) {
    const GradientChunk& chunk = bucket.chunks[static_cast<std::size_t>(Owners()[i])];
    const auto sent = SparseMessage::Read(order.messages[i], order.chunks.bucket, order.format,
                                          order.chunks.pieces[i]);
    assert(sent);
    if (!sent->finite()) continue;  // it was put back when it was packed
    std::vector<std::uint64_t> places(chunk.Words());
    sent->AddTo(std::span(residuals_.data() + chunk.begin, chunk.size()), places);
  }
}

template <class T>
void GradientReducer<T>::ResidualsRestored() {
  holds_.assign(buckets_.size(), residuals_.size() > 0);
  others_restored_.assign(buckets_.size(), residuals_.size() > 0 && NodeFirst());
}

template <class T>
void GradientReducer<T>::ForgetResiduals() {
  residuals_.Clear();
  holds_.assign(buckets_.size(), false);
}

template <class T>
void GradientReducer<T>::Rescale(float factor) {
  for (float& residual : residuals_.span()) residual *= factor;
}

template class GradientReducer<float>;
template class GradientReducer<kernels::BFloat16>;
template class GradientReducer<kernels::Float16>;

}  // namespace adaptive_train
