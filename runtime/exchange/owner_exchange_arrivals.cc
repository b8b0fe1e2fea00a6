// What arrives in an exchange through owners: messages become the own chunk's sum, sums the result.
#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <utility>

#include "kernels/int4.h"
#include "runtime/exchange/owner_exchange.h"

namespace adaptive_train {
namespace {

/// The threshold for floats sent in the 128 sizes from number `smallest` on; smaller ones are
/// dropped.
double ThresholdOf(int smallest) {
  const std::uint32_t number = static_cast<std::uint32_t>(smallest) << kernels::kFloat8Shift;
  return static_cast<double>(std::bit_cast<float>(number - (1U << (kernels::kFloat8Shift - 1))));
}

/// Whether the 128 sizes from `smallest` on cover the sums. They may not if a rank with next to
/// nothing to send started with sizes that are far too small for the others.
bool SizesReach(int smallest, std::span<const float> sums) {
  std::uint32_t largest = 0;  // as bits, which compare like magnitudes
  for (const float sum : sums)
    largest = std::max(largest, std::bit_cast<std::uint32_t>(sum) & 0x7fff'ffffU);
  return std::bit_cast<float>(largest) <= kernels::LargestSize(smallest);
}

}  // namespace

void OwnerExchange::OnReceived(ExchangePhase phase, std::size_t peer, const std::string& cause,
                               std::size_t bytes) {
  Incoming& incoming = Of(phase)[peer];
  incoming.receive.reset();
  const auto came = std::span<const std::byte>(incoming.buffer).first(bytes);
  if (phase == ExchangePhase::kMessage) {
    cause.empty() ? AcceptMessage(peer, came) : MessageMissing(peer, cause);
  } else if (cause.empty()) {
    AcceptSum(peer, came);
  } else {
    Note(Lane().RankOf(peer), About(phase) + ": " + cause);  // kept only if it is the first failure
  }
}

void OwnerExchange::AcceptMessage(std::size_t peer, std::span<const std::byte> bytes) {
  auto message =
      SparseMessage::Read(bytes, order_.chunks.bucket, order_.format, order_.chunks.pieces[Own()]);
  if (!message) return MessageMissing(peer, message.error().message);
  messages_[peer].message = std::move(*message);
  AddInOrder();
  if (++arrived_ == Size()) EndOfMessages();
}

void OwnerExchange::MessageMissing(std::size_t peer, const std::string& cause) {
  Note(Lane().RankOf(peer), About(ExchangePhase::kMessage) + ": " + cause);
  message_missing_ = true;
  if (++arrived_ == Size()) EndOfMessages();
}

/// Adds as far as messages have arrived without a gap.
void OwnerExchange::AddInOrder() {
  for (; added_ < Size() && messages_[added_].message; ++added_) {
    const SparseMessage& message = *messages_[added_].message;
    sum_finite_ &= message.finite();
    if (message.finite() && (sum_finite_ || !order_.gather)) {
      message.AddTo(sum_, union_);
      for (std::size_t i = 0; i < smallest_.size(); ++i)
        smallest_[i] = std::min(smallest_[i], message.SmallestOf(i));
    }
    messages_[added_] = {};
  }
}

void OwnerExchange::EndOfMessages() {
  // Nobody would get this rank's sum, and other sums may not come either. An error in another's sum
  // does not stop this rank's own sum: the others wait for it.
  if (message_missing_ || Cancelled()) return CancelSums();
  if (order_.gather) {
    packed_sum_ = PackedSum();
  } else {
    for (const float sum : sum_) sum_finite_ &= std::isfinite(sum);
  }
  if (!order_.gather) return KeepOwnSum();
  if (!sum_finite_) sum_.clear();
  AcceptSum(Own(), packed_sum_);  // the own chunk as all others see it
  for (std::size_t i = 1; i < Size(); ++i)
    SendTo((Own() + i) % Size(), ExchangeTag(Lane(), ExchangePhase::kSum, Lane().rank), packed_sum_,
           {}, HowToSend());
}

/// Pieces of which every element came are sent whole; of the others, what is not zero.
MessageBytes OwnerExchange::PackedSum() {
  SparseMessageWriter writer(order_.chunks.bucket, order_.format);
  const PieceLengths pieces = order_.chunks.pieces[Own()];
  const float* sums = sum_.data();
  std::span<std::uint64_t> bitmap = union_;
  if (sum_finite_) writer.Reserve(pieces.size(), CountOf(union_));
  kernels::PooledVector<float> values;  // enough for any format
  kernels::PooledVector<std::byte> packed;
  for (std::size_t i = 0; sum_finite_ && i < pieces.size(); ++i) {
    const auto words = bitmap.first(BitmapWords(pieces[i]));
    const auto length = static_cast<std::size_t>(pieces[i]);
    if (FormatOfPiece(order_.format, smallest_[i]) == ValueFormat::kInt4) {
      packed.resize(std::max(packed.size(), kernels::Int4Bytes(pieces[i])));
      sum_finite_ =
          kernels::cpu::PackInt4({.count = pieces[i], .gradients = sums, .packed = packed.data()});
      writer.Add(pieces[i], words.data(), pieces[i], packed.data(), kPackedWhole);
      sums += pieces[i];
      bitmap = bitmap.subspan(words.size());
      continue;
    }
    if (smallest_[i] != 0 && !SizesReach(smallest_[i], {sums, length})) smallest_[i] = 0;
    values.resize(std::max(values.size(), length));
    const bool whole = CountOf(words) == length;
    kernels::SelectArguments<float> select;
    select.count = pieces[i];
    select.gradients = sums;
    select.threshold = smallest_[i] != 0 ? ThresholdOf(smallest_[i])
                       : whole           ? 0
                                         : std::numeric_limits<float>::denorm_min();
    select.format = FormatOfPiece(order_.format, smallest_[i]);
    select.bitmap = words.data();
    select.values = values.data();
    const kernels::Selected selected = kernels::cpu::Select(select);
    sum_finite_ = selected.finite;
    writer.Add(pieces[i], words.data(), selected.count, values.data(), smallest_[i]);
    sums += pieces[i];
    bitmap = bitmap.subspan(words.size());
  }
  if (!sum_finite_) writer.NotFinite();
  return writer.Finish();
}

void OwnerExchange::KeepOwnSum() {
  if (!sum_finite_) return WriteNotFinite(Own());
  std::ranges::copy(sum_, Chunk(Own()).begin());
}

void OwnerExchange::AcceptSum(std::size_t owner, std::span<const std::byte> bytes) {
  if (Failed()) return;
  const auto message =
      SparseMessage::Read(bytes, order_.chunks.bucket, order_.format, order_.chunks.pieces[owner]);
  if (!message)
    return Note(Lane().RankOf(owner), About(ExchangePhase::kSum) + ": " + message.error().message);
  message->finite() ? message->WriteTo(Chunk(owner)) : WriteNotFinite(owner);
  sums_[owner].buffer = {};
}

void OwnerExchange::WriteNotFinite(std::size_t owner) {
  finite_ = false;
  const std::span<float> chunk = Chunk(owner);
  std::ranges::fill(chunk, 0.0f);
  if (!chunk.empty()) chunk[0] = std::numeric_limits<float>::quiet_NaN();
}

}  // namespace adaptive_train
