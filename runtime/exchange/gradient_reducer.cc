#include "runtime/exchange/gradient_reducer.h"

#include <fmt/format.h>

#include <algorithm>
#include <cassert>
#include <chrono>
#include <cmath>
#include <cstring>
#include <limits>
#include <utility>

#include "core/seconds.h"

namespace adaptive_train {
namespace {

/// Pieces above this size are judged by a sample: one cache line of each kSampleLines.
constexpr std::size_t kWholeElements = 8192;
constexpr std::size_t kLineElements = 16;
constexpr std::size_t kSampleLines = 16;

std::size_t Words(std::size_t elements) { return (elements + 63) / 64; }

/// Which line of the group is looked at: a fixed one would always see the same columns of a matrix.
std::size_t LineOf(std::size_t group) {
  static_assert(kSampleLines == 16);
  return (group * 0x9e3779b97f4a7c15ULL) >> 60;
}

float ValueAt(kernels::ValueFormat format, const std::byte* values, std::size_t index) {
  if (format == kernels::ValueFormat::kFloat32) {
    float value = 0;
    std::memcpy(&value, values + index * sizeof value, sizeof value);
    return value;
  }
  kernels::BFloat16 value;
  std::memcpy(&value, values + index * sizeof value, sizeof value);
  return kernels::ToFloat(value);
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
      buckets_(CutBuckets(layout, communicator.Size(), options.bucket_elements)),
      residuals_(device, options.feedback ? gradients.size() : 0),
      holds_(buckets_.size(), false),
      final_from_(gradients.size()) {
  if (options.feedback) residuals_.Clear();
}

template <class T>
void GradientReducer<T>::Add(std::size_t begin, [[maybe_unused]] std::size_t end) {
  assert(end == final_from_ && begin <= end);
  final_from_ = begin;
  while (next_ < buckets_.size() && buckets_[next_].begin >= final_from_) Start(next_++);
}

template <class T>
void GradientReducer<T>::Start(std::size_t bucket) {
  const auto density = policy_.DensityOf(buckets_[bucket].layer);
  if (communicator_.Size() == 1 || (!density && !sharded_)) return StartRing(bucket);
  assert(!density || residuals_.size() == gradients_.size());
  const double from = SteadySecondsNow();
  StartOwners(bucket, density.value_or(1),
              density ? policy_.format : kernels::ValueFormat::kFloat32);
  figures_.select_s += SteadySecondsNow() - from;
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
  exchanges_.push_back({bucket, communicator_.AllReduce(Purpose::kGradient, gradients), nullptr});
}

template <class T>
void GradientReducer<T>::StartOwners(std::size_t bucket, double density,
                                     kernels::ValueFormat format) {
  OwnerExchangeOrder order;
  order.chunks.bucket = static_cast<std::uint32_t>(bucket);
  for (const GradientChunk& chunk : buckets_[bucket].chunks) {
    order.chunks.pieces.push_back(chunk.PieceLengths());
    order.messages.push_back(Pack(bucket, chunk, density, format));
  }
  order.format = format;
  order.gather = !sharded_;
  order.result = gradients_.subspan(buckets_[bucket].begin, buckets_[bucket].size());
  auto owners =
      std::make_shared<OwnerExchange>(fmt::format("exchange of gradient bucket {}", bucket),
                                      communicator_.NextLane(Purpose::kGradient), std::move(order));
  holds_[bucket] = residuals_.size() > 0;
  Request request = communicator_.Launch(owners);
  exchanges_.push_back({bucket, std::move(request), std::move(owners)});
}

template <class T>
std::vector<std::byte> GradientReducer<T>::Pack(std::size_t bucket, const GradientChunk& chunk,
                                                double density, kernels::ValueFormat format) {
  SparseMessageWriter writer(static_cast<std::uint32_t>(bucket), format);
  const auto value_bytes = static_cast<std::size_t>(kernels::BytesOf(format));
  std::size_t words = 0;
  for (const GradientPiece& piece : chunk.pieces) words += Words(piece.size());
  bitmaps_.resize(words);
  values_.resize(chunk.size() * value_bytes);
  std::vector<Packed> packed;
  bool finite = true;
  words = 0;
  for (const GradientPiece& piece : chunk.pieces) {
    Packed& part = packed.emplace_back();
    part.bitmap = bitmaps_.data() + words;
    part.values = values_.data() + (piece.begin - chunk.begin) * value_bytes;
    words += Words(piece.size());
    kernels::SelectArguments<T> select;
    select.count = static_cast<std::int64_t>(piece.size());
    select.gradients = gradients_.data() + piece.begin;
    select.residuals = ResidualsAt(piece.begin);
    select.threshold = ThresholdOf(piece, density);
    select.keep = policy_.keep;
    select.format = format;
    select.bitmap = part.bitmap;
    select.values = part.values;
    const kernels::Selected selected = device_.Select(select);
    selected_ += selected.count;
    finite = finite && selected.finite;
    writer.Add(select.count, part.bitmap, selected.count, part.values);
  }
  if (!finite) {
    writer.NotFinite();
    for (std::size_t i = 0; i < packed.size(); ++i) PutBack(chunk.pieces[i], packed[i], format);
  }
  return writer.Finish();
}

/// The chunk's message will hold no values: they go back to the residuals, where they are finite.
template <class T>
void GradientReducer<T>::PutBack(const GradientPiece& piece, const Packed& packed,
                                 kernels::ValueFormat format) {
  float* residuals = ResidualsAt(piece.begin);
  if (residuals == nullptr) return;
  std::size_t taken = 0;
  for (std::size_t i = 0; i < piece.size(); ++i) {
    if ((packed.bitmap[i / 64] >> (i % 64) & 1) != 0)
      residuals[i] += ValueAt(format, packed.values, taken++);
    if (!std::isfinite(residuals[i])) residuals[i] = 0;
  }
}

/// No threshold is kept from step to step: a run that goes on from a checkpoint selects what it
/// would have selected. The sample makes up for the time of looking anew.
template <class T>
double GradientReducer<T>::ThresholdOf(const GradientPiece& piece, double density) {
  if (!piece.matrix || density >= 1) return 0;
  kernels::ThresholdArguments<T> threshold;
  threshold.count = static_cast<std::int64_t>(piece.size());
  threshold.gradients = gradients_.data() + piece.begin;
  threshold.residuals = ResidualsAt(piece.begin);
  if (piece.size() > kWholeElements) {
    const std::size_t groups = piece.size() / (kLineElements * kSampleLines);
    sample_.resize(std::max(sample_.size(), groups * kLineElements));
    for (std::size_t group = 0; group < groups; ++group) {
      const std::size_t from = (group * kSampleLines + LineOf(group)) * kLineElements;
      for (std::size_t i = 0; i < kLineElements; ++i)
        sample_[group * kLineElements + i] =
            threshold.gradients[from + i] + threshold.residuals[from + i];
    }
    threshold.count = static_cast<std::int64_t>(groups * kLineElements);
    threshold.gradients = sample_.data();
    threshold.residuals = nullptr;
  }
  threshold.wanted =
      static_cast<std::int64_t>(std::ceil(density * static_cast<double>(threshold.count)));
  // Where most elements are 0 those alone are not worth sending.
  return std::max(device_.Threshold(threshold),
                  static_cast<double>(std::numeric_limits<float>::denorm_min()));
}

template <class T>
tl::expected<void, CommError> GradientReducer<T>::Finish(Deadline deadline) {
  assert(next_ == buckets_.size());
  tl::expected<void, CommError> outcome;
  for (Exchange& exchange : exchanges_) {
    auto done = exchange.request.Wait(outcome ? deadline : std::chrono::steady_clock::now());
    if (!done && outcome) outcome = done;
  }
  next_ = 0;
  final_from_ = gradients_.size();
  return outcome;
}

template <class T>
void GradientReducer<T>::Settle(bool updated) {
  for (const Exchange& exchange : exchanges_) {
    const GradientBucket& bucket = buckets_[exchange.bucket];
    const auto rank = static_cast<std::size_t>(communicator_.Rank());
    if (!exchange.owners) {
      if (!updated || !holds_[exchange.bucket]) continue;
      std::fill_n(residuals_.data() + bucket.begin, bucket.size(), 0.0f);
      holds_[exchange.bucket] = false;
    } else if (residuals_.size() == 0) {
      continue;
    } else if (updated) {
      KeepRounding(bucket.chunks[rank], *exchange.owners);
    } else {
      TakeBack(bucket, *exchange.owners);
    }
  }
  exchanges_.clear();
  settled_ = std::exchange(figures_, {});
  settled_.density = gradients_.empty() ? 1
                                        : static_cast<double>(std::exchange(selected_, 0)) /
                                              static_cast<double>(gradients_.size());
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
    std::size_t words = 0;
    for (const GradientPiece& piece : chunk.pieces) words += Words(piece.size());
    bitmaps_.assign(words, 0);
    sent->AddTo(std::span(residuals_.data() + chunk.begin, chunk.size()), bitmaps_);
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
