#include "runtime/exchange/gradient_reducer.h"

#include <time.h>

#include <fmt/format.h>

#include <algorithm>
#include <cassert>
#include <chrono>
#include <cmath>
#include <utility>

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
      buckets_(CutBuckets(layout, communicator.Size(), options.bucket_elements)),
      residuals_(device, options.feedback ? gradients.size() : 0),
      selection_(device, gradients, residuals_.span()),
      holds_(buckets_.size(), false),
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
  while (next_ < buckets_.size() && buckets_[next_].begin >= final_from_) Start(next_++);
}

template <class T>
void GradientReducer<T>::AddNothing() {
  nothing_ = true;
  Add(0, gradients_.size());
  nothing_ = false;
}

template <class T>
void GradientReducer<T>::Start(std::size_t bucket) {
  added_ += static_cast<std::int64_t>(buckets_[bucket].size());
  const auto density = policy_.DensityOf(buckets_[bucket].layer);
  if (communicator_.Size() == 1 || (!density && !sharded_)) return StartRing(bucket);
  assert(!density || residuals_.size() == gradients_.size());
  const double from = ThreadCpuSecondsNow();
  if (density && policy_.sketch) {
    StartSketch(bucket, *density);
  } else {
    StartOwners(bucket, density);
  }
  figures_.select_cpu_s += ThreadCpuSecondsNow() - from;
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
  exchanges_.push_back(
      {bucket, communicator_.AllReduce(Purpose::kGradient, gradients), true, nullptr, nullptr});
}

template <class T>
void GradientReducer<T>::StartOwners(std::size_t bucket, std::optional<double> density) {
  const auto format = density ? policy_.format : kernels::ValueFormat::kFloat32;
  const CollectiveLane lane = communicator_.NextLane(Purpose::kGradient);
  OwnerExchangeOrder order;
  bool finite = true;
  order.chunks.bucket = static_cast<std::uint32_t>(lane.sequence);
  for (const GradientChunk& chunk : buckets_[bucket].chunks) {
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
  order.keep = residuals_.size() > 0 && (density || holds_[bucket]);
  order.result = gradients_.subspan(buckets_[bucket].begin, buckets_[bucket].size());
  if (release_) ReleaseOthers(buckets_[bucket]);  // the messages have it
  auto owners = std::make_shared<OwnerExchange>(NameOf(lane, bucket), lane, std::move(order));
  holds_[bucket] = owners->Order().keep || (!finite && residuals_.size() > 0);
  Request request = communicator_.Launch(owners);
  exchanges_.push_back({bucket, std::move(request), !density, std::move(owners), nullptr});
}

template <class T>
void GradientReducer<T>::StartSketch(std::size_t bucket, double density) {
  const CollectiveLane lane = communicator_.NextLane(Purpose::kGradient);
  SketchExchangeOrder order;
  order.chunks.bucket = static_cast<std::uint32_t>(bucket);
  order.step = static_cast<std::int64_t>(lane.sequence);
  order.earlier_lane = sketch_lanes_[bucket];
  sketch_lanes_[bucket] = lane.tag;
  constexpr auto kFormat = kernels::ValueFormat::kFloat32;
  for (const GradientChunk& chunk : buckets_[bucket].chunks) {
    const SelectedChunk selected = Select(chunk, density, kFormat);
    for (const SelectedPiece& piece : selected.pieces) {
      order.bitmap.insert(order.bitmap.end(), piece.bitmap.begin(), piece.bitmap.end());
      for (std::size_t i = 0; i < static_cast<std::size_t>(piece.count); ++i)
        order.values.push_back(selected.finite ? ValueAt(kFormat, piece.values, i) : 0.0f);
    }
    order.finite = order.finite && selected.finite;
    order.chunks.pieces.push_back(chunk.PieceLengths());
  }
  order.result = gradients_.subspan(buckets_[bucket].begin, buckets_[bucket].size());
  auto sketch = std::make_shared<SketchExchange>(NameOf(lane, bucket), lane, std::move(order));
  holds_[bucket] = true;
  Request request = communicator_.Launch(sketch);
  exchanges_.push_back({bucket, std::move(request), false, nullptr, std::move(sketch)});
}

template <class T>
SelectedChunk GradientReducer<T>::Select(const GradientChunk& chunk, double density,
                                         kernels::ValueFormat format) {
  SelectedChunk selected = nothing_ ? selection_.Nothing(chunk)
                                    : selection_.Select(chunk, density, policy_.keep, format);
  selected_ += selected.count;
  return selected;
}

template <class T>
void GradientReducer<T>::ReleaseOthers(const GradientBucket& bucket) {
  const GradientChunk& own = OwnChunk(bucket);
  const auto release = [&](std::size_t begin, std::size_t end) {
    device_.Release(gradients_.data() + begin, (end - begin) * sizeof(float));
  };
  release(bucket.begin, own.begin);
  release(own.end, bucket.end);
}

template <class T>
tl::expected<void, CommError> GradientReducer<T>::Limit(std::size_t elements, Deadline deadline) {
  std::size_t on_their_way = 0;
  for (std::size_t i = over_; i < exchanges_.size(); ++i)
    on_their_way += buckets_[exchanges_[i].bucket].size();
  tl::expected<void, CommError> outcome;
  for (; over_ < exchanges_.size() && (!outcome || on_their_way > elements); ++over_) {
    Exchange& exchange = exchanges_[over_];
    const GradientBucket& bucket = buckets_[exchange.bucket];
    auto done = exchange.request.Wait(outcome ? deadline : std::chrono::steady_clock::now());
    if (!done && outcome) outcome = done;
    if (release_ && exchange.sketch) ReleaseOthers(bucket);  // all ranks get its sums
    on_their_way -= bucket.size();
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
  next_ = 0;
  final_from_ = gradients_.size();
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
  next_ = 0;
  final_from_ = gradients_.size();
  return outcome;
}

template <class T>
void GradientReducer<T>::Settle(bool updated) {
  SettleExchanges(updated);
  if (!updated && residuals_.size() > 0) TakeBackSums();
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
  for (const GradientChunk& chunk : bucket.chunks) {
    for (const GradientPiece& piece : chunk.pieces) {
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
  for (std::size_t owner = 0; owner < bucket.chunks.size(); ++owner) {
    const GradientChunk& chunk = bucket.chunks[owner];
    const auto sent = SparseMessage::Read(order.messages[owner], order.chunks.bucket, order.format,
                                          order.chunks.pieces[owner]);
    assert(sent);
    if (!sent->finite()) continue;  // it was put back when it was packed
    std::vector<std::uint64_t> places(chunk.Words());
    sent->AddTo(std::span(residuals_.data() + chunk.begin, chunk.size()), places);
  }
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
