#include "tests/fakes/faulty_exchange.h"

namespace adaptive_train {
namespace {

/// All elements of a chunk, each of them 1.
MessageBytes DenseMessage(std::uint32_t bucket, PieceLengths pieces) {
  SparseMessageWriter writer(bucket, ValueFormat::kFloat32);
  for (const std::int64_t length : pieces) {
    const std::vector<float> values(static_cast<std::size_t>(length), 1.0f);
    std::vector<std::uint64_t> bitmap((values.size() + 63) / 64, ~std::uint64_t{0});
    if (length % 64 != 0) bitmap.back() = (std::uint64_t{1} << length % 64) - 1;
    writer.Add(length, bitmap.data(), length, values.data());
  }
  return writer.Finish();
}

}  // namespace

FaultyExchange::FaultyExchange(const CollectiveLane& lane, BucketChunks chunks,
                               const ExchangeFaultOrder& order)
    : Operation("faulty exchange"), lane_(lane), chunks_(std::move(chunks)), order_(order) {}

void FaultyExchange::Start() {
  pending_ = 1;
  // Their places must not change while parts are under way.
  buffers_.reserve(6 * chunks_.pieces.size());
  for (const auto phase : {ExchangePhase::kMessage, ExchangePhase::kSum}) {
    for (int peer = 0; peer < lane_.size; ++peer) {
      if (peer != lane_.rank) Receive(phase, peer);
    }
  }
  for (const auto phase : {ExchangePhase::kMessage, ExchangePhase::kSum}) {
    for (int peer = 0; peer < lane_.size; ++peer) {
      if (peer != lane_.rank) Send(phase, peer);
    }
  }
  PartOver();
}

void FaultyExchange::Cancel(const std::string&) {
  if (Done()) return;
  for (const auto& part : parts_) lane_.transport->Cancel(part);
}

void FaultyExchange::Receive(ExchangePhase phase, int peer) {
  const int owner = phase == ExchangePhase::kMessage ? lane_.rank : peer;
  buffers_.emplace_back(
      MaxMessageBytes(chunks_.pieces[static_cast<std::size_t>(owner)], ValueFormat::kFloat32));
  ++pending_;
  parts_.push_back(lane_.transport->ReceiveUpTo(
      peer, ExchangeTag(lane_, phase, peer), buffers_.back().data(), buffers_.back().size(),
      [self = shared_from_this()](const std::string&, std::size_t) { self->PartOver(); }));
}

MessageBytes FaultyExchange::Made(ExchangePhase phase, int peer) const {
  const int owner = phase == ExchangePhase::kMessage ? peer : lane_.rank;
  const PieceLengths pieces = chunks_.pieces[static_cast<std::size_t>(owner)];
  const bool now = phase == order_.phase && order_.victim.value_or(peer) == peer;
  if (now && order_.fault == ExchangeFault::kOtherBucket)
    return DenseMessage(chunks_.bucket + 1, pieces);
  auto bytes = DenseMessage(chunks_.bucket, pieces);
  if (!now) return bytes;
  if (order_.fault == ExchangeFault::kCorrupted) bytes.back() ^= std::byte{1};
  if (order_.fault == ExchangeFault::kTruncated) bytes.pop_back();
  if (order_.fault == ExchangeFault::kEmpty) bytes.clear();
  if (order_.fault == ExchangeFault::kTooLong)
    bytes.resize(MaxMessageBytes(pieces, ValueFormat::kFloat32) + 1);
  return bytes;
}

void FaultyExchange::Send(ExchangePhase phase, int peer) {
  const bool meant = order_.victim.value_or(peer) == peer;
  if (meant && order_.fault == ExchangeFault::kSilent && phase >= order_.phase) return;
  SendOnce(phase, peer, Made(phase, peer));
  if (meant && order_.fault == ExchangeFault::kTwice && phase == order_.phase)
    SendOnce(phase, peer, Made(phase, peer));
}

void FaultyExchange::SendOnce(ExchangePhase phase, int peer, MessageBytes bytes) {
  buffers_.push_back(std::move(bytes));
  ++pending_;
  parts_.push_back(lane_.transport->Send(
      peer, ExchangeTag(lane_, phase, lane_.rank), buffers_.back().data(), buffers_.back().size(),
      Sending::kAtOnce, [self = shared_from_this()](const std::string&) { self->PartOver(); }));
}

void FaultyExchange::PartOver() {
  if (--pending_ == 0) Complete(std::nullopt);
}

}  // namespace adaptive_train
