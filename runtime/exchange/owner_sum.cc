// A bucket that goes through the owners of its chunks.
#include <cassert>
#include <utility>

#include "runtime/exchange/bucket_sum.h"

namespace adaptive_train {

template <class T>
Request OwnerSum<T>::Start(const CollectiveLane& lane) {
  ReducerState<T>& state = this->state_;
  OwnerExchangeOrder order;
  order.chunks.bucket = static_cast<std::uint32_t>(lane.sequence);
  order.earlier_lane = std::exchange(this->Kept().owner_lane, lane.tag);
  order.format = density_ ? state.policy.format : kernels::ValueFormat::kFloat32;
  if (density_ && state.policy.zstd) order.lossless = SparseMessageWriter::Lossless::kZstd;
  order.gather = !state.options.sharded;
  // A skipped step loses what is summed whole, as on a ring, but not what earlier steps held back.
  order.keep = state.Feedback() && (density_ || this->Kept().holds);
  result_ = {state.device, state.Together(this->Bucket(), state.Owners())};
  order.result = result_.Of();
  Pack(order);
  if (state.options.release) state.ReleaseOthers(this->Bucket());  // the messages have them
  this->Kept().holds = order.keep;
  exchange_ =
      std::make_shared<OwnerExchange>(state.NameOf(lane, this->number_), lane, std::move(order));
  return state.group.Launch(exchange_);
}

template <class T>
void OwnerSum<T>::Pack(OwnerExchangeOrder& order) {
  SparseMessageWriter writer(order.chunks.bucket, order.format);
  for (const int owner : this->state_.Owners()) {
    const GradientChunk chunk = this->ChunkOf(owner);
    const SelectedChunk selected = this->state_.Select(chunk, density_.value_or(1), order.format);
    writer.Reserve(selected.pieces.size(), selected.count);
    for (std::size_t i = 0; i < selected.pieces.size(); ++i) {
      const SelectedPiece& piece = selected.pieces[i];
      writer.Add(static_cast<std::int64_t>(chunk.pieces[i].size()), piece.bitmap.data(),
                 piece.count, piece.values, piece.smallest);
    }
    if (!selected.finite) {
      writer.NotFinite();
      if (!order.keep) DropResiduals(chunk);
    }
    finite_ = finite_ && selected.finite;
    order.chunks.pieces.push_back(chunk.PieceLengths());
    // What stays here need not be short.
    const bool stays = owner == this->state_.group.Rank();
    order.messages.push_back(
        writer.Finish(stays ? SparseMessageWriter::Lossless::kNone : order.lossless));
  }
}

/// Selecting has put a chunk that is not finite into them, also where nothing was held back.
template <class T>
void OwnerSum<T>::DropResiduals(const GradientChunk& chunk) {
  ReducerState<T>& state = this->state_;
  if (!state.Feedback()) return;
  state.device.Scale(static_cast<std::int64_t>(chunk.size()), 0,
                     state.residuals.data() + chunk.begin);
}

/// Without a gather the exchange has written the own chunk alone.
template <class T>
void OwnerSum<T>::Arrive() {
  const ReducerState<T>& state = this->state_;
  if (exchange_->Order().gather) {
    result_.Store();
  } else {
    const GradientChunk own = state.OwnChunk(this->Bucket());
    result_.Store(state.gradients.subspan(own.begin, own.size()));
  }
  result_ = {};
}

/// The difference between the exact sum and what all ranks got. The owner's own sum of a sharded
/// bucket is not rounded. If it is not finite, only the owner knows, and keeps what the others
/// sent.
template <class T>
void OwnerSum<T>::Settle() {
  ReducerState<T>& state = this->state_;
  const GradientChunk own = state.OwnChunk(this->Bucket());
  const std::span<const float> sum = exchange_->OwnSum();
  if (state.options.sharded && !exchange_->finite()) {
    if (exchange_->Order().keep) {
      const auto count = static_cast<std::int64_t>(sum.size());
      float* const residuals = state.residuals.data() + own.begin;
      state.device.AddInto(count, state.values.Of(state.device, sum), residuals);
      state.device.ClearNotFinite(count, residuals);
    }
    state.PutOffNotFinite(this->Bucket());
  } else if (exchange_->Order().keep && !state.options.sharded) {
    state.device.AddDifference(
        static_cast<std::int64_t>(sum.size()), state.values.Of(state.device, sum),
        state.gradients.data() + own.begin, state.residuals.data() + own.begin);
  }
  if (!density_ && finite_ && exchange_->finite()) this->Kept().holds = false;
}

template <class T>
void OwnerSum<T>::TakeBack() {
  if (!exchange_) return;  // it failed before it was sent
  const OwnerExchangeOrder& order = exchange_->Order();
  if (!order.keep) return;
  ReducerState<T>& state = this->state_;
  const std::vector<int>& owners = state.Owners();
  for (std::size_t i = 0; i < owners.size(); ++i) {
    const GradientChunk chunk = this->ChunkOf(owners[i]);
    const auto sent = SparseMessage::Read(order.messages[i], order.chunks.bucket, order.format,
                                          order.chunks.pieces[i]);
    assert(sent);
    if (!sent->finite()) continue;  // already put back when it was packed
    std::vector<std::uint64_t> places(chunk.Words());
    const kernels::HostCopy<float> residuals(
        state.device, state.residuals.span().subspan(chunk.begin, chunk.size()));
    sent->AddTo(residuals.Fetch(), places);
    residuals.Store();
  }
}

template class OwnerSum<float>;
template class OwnerSum<kernels::BFloat16>;
template class OwnerSum<kernels::Float16>;

}  // namespace adaptive_train
