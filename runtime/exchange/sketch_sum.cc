// A bucket that is sent as a count sketch.
#include <utility>

#include "runtime/compress/index_coding.h"
#include "runtime/exchange/bucket_sum.h"

namespace adaptive_train {

template <class T>
Request SketchSum<T>::Start(const CollectiveLane& lane) {
  ReducerState<T>& state = this->state_;
  SketchExchangeOrder order;
  order.chunks.bucket = static_cast<std::uint32_t>(this->number_);
  order.step = static_cast<std::int64_t>(lane.sequence);
  order.earlier_lane = std::exchange(this->Kept().sketch_lane, lane.tag);
  result_ = {state.device, state.Together(this->Bucket(), state.Owners())};
  order.result = result_.Of();
  Select(order);
  this->Kept().holds = true;
  exchange_ =
      std::make_shared<SketchExchange>(state.NameOf(lane, this->number_), lane, std::move(order));
  return state.group.Launch(exchange_);
}

template <class T>
void SketchSum<T>::Select(SketchExchangeOrder& order) {
  constexpr auto kFormat = kernels::ValueFormat::kFloat32;
  for (const int owner : this->state_.Owners()) {
    const GradientChunk chunk = this->ChunkOf(owner);
    const SelectedChunk selected = this->state_.Select(chunk, density_, kFormat);
    for (const SelectedPiece& piece : selected.pieces) {
      order.bitmap.insert(order.bitmap.end(), piece.bitmap.begin(), piece.bitmap.end());
      for (std::size_t i = 0; i < static_cast<std::size_t>(piece.count); ++i)
        order.values.push_back(selected.finite ? ValueAt(kFormat, piece.values, i) : 0.0f);
    }
    order.finite = order.finite && selected.finite;
    order.chunks.pieces.push_back(chunk.PieceLengths());
  }
}

template <class T>
void SketchSum<T>::Arrive() {
  result_.Store();
  result_ = {};
}

/// What fixed point removed from this rank's values. Values of a chunk that is not finite are 0
/// here: they were put back at once. A sum that is not finite contains nothing of any rank.
template <class T>
void SketchSum<T>::Settle() {
  if (!exchange_->finite()) {
    this->state_.PutOffNotFinite(this->Bucket());
    return TakeBack();
  }
  this->state_.counts.unpeeled += exchange_->unfinished() ? 1 : 0;
  std::vector<float> rest = exchange_->Order().values;
  for (float& value : rest) value -= exchange_->fixed_point().Sent(value);
  AddToResiduals(rest);
}

template <class T>
void SketchSum<T>::TakeBack() {
  if (!exchange_) return;  // it failed before it was sent
  this->state_.counts.unpeeled += exchange_->unfinished() ? 1 : 0;
  AddToResiduals(exchange_->Order().values);
}

/// One value per selected element.
template <class T>
void SketchSum<T>::AddToResiduals(const std::vector<float>& values) {
  ReducerState<T>& state = this->state_;
  const std::uint64_t* bitmap = state.bitmaps.Of(state.device, exchange_->Order().bitmap);
  const float* next = state.values.Of(state.device, values);
  for (const int owner : state.Owners()) {
    const GradientChunk chunk = this->ChunkOf(owner);
    for (const GradientPiece& piece : chunk.pieces) {
      const auto length = static_cast<std::int64_t>(piece.size());
      next += state.device.AddSelected({.count = length,
                                        .bitmap = bitmap,
                                        .format = kernels::ValueFormat::kFloat32,
                                        .values = next,
                                        .into = state.residuals.data() + piece.begin});
      bitmap += BitmapWords(length);
    }
  }
}

template class SketchSum<float>;
template class SketchSum<kernels::BFloat16>;
template class SketchSum<kernels::Float16>;

}  // namespace adaptive_train
