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

/// Writes the pieces of a sum into a message, with memory that all of them use.
class SumPacker {
 public:
  SumPacker(SparseMessageWriter& writer, ValueFormat format) : writer_(writer), format_(format) {}

  /// One piece, whose bits in `bitmap` are set where an element came. `smallest` is the least that
  /// was received. False, and no more may be added, if an element is not finite.
  bool Add(std::span<const float> sums, std::span<std::uint64_t> bitmap, int smallest) {
    return FormatOfPiece(format_, smallest) == ValueFormat::kInt4
               ? AddInt4(sums, bitmap)
               : AddSelected(sums, bitmap,
                             smallest != 0 && SizesReach(smallest, sums) ? smallest : 0);
  }

 private:
  bool AddInt4(std::span<const float> sums, std::span<const std::uint64_t> bitmap) {
    const std::int64_t length = std::ssize(sums);
    packed_.resize(std::max(packed_.size(), kernels::Int4Bytes(length)));
    const bool finite = kernels::cpu::PackInt4(
        {.count = length, .gradients = sums.data(), .packed = packed_.data()});
    writer_.Add(length, bitmap.data(), length, packed_.data(), kPackedWhole);
    return finite;
  }

  /// All of a piece of which every element came; of another, what is not zero.
  bool AddSelected(std::span<const float> sums, std::span<std::uint64_t> bitmap, int smallest) {
    values_.resize(std::max(values_.size(), sums.size()));  // enough for any format
    const bool whole = CountOf(bitmap) == sums.size();
    kernels::SelectArguments<float> select;
    select.count = std::ssize(sums);
    select.gradients = sums.data();
    select.threshold = smallest != 0 ? ThresholdOf(smallest)
                       : whole       ? 0
                                     : std::numeric_limits<float>::denorm_min();
    select.format = FormatOfPiece(format_, smallest);
    select.bitmap = bitmap.data();
    select.values = values_.data();
    const kernels::Selected selected = kernels::cpu::Select(select);
    writer_.Add(select.count, bitmap.data(), selected.count, values_.data(), smallest);
    return selected.finite;
  }

  SparseMessageWriter& writer_;
  const ValueFormat format_;
  kernels::PooledVector<float> values_;
  kernels::PooledVector<std::byte> packed_;
};

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

MessageBytes OwnerExchange::PackedSum() {
  SparseMessageWriter writer(order_.chunks.bucket, order_.format);
  const PieceLengths pieces = order_.chunks.pieces[Own()];
  std::span<const float> sums = sum_;
  std::span<std::uint64_t> bitmap = union_;
  if (sum_finite_) writer.Reserve(pieces.size(), CountOf(union_));
  SumPacker packer(writer, order_.format);
  for (std::size_t i = 0; sum_finite_ && i < pieces.size(); ++i) {
    const auto length = static_cast<std::size_t>(pieces[i]), words = BitmapWords(pieces[i]);
    sum_finite_ = packer.Add(sums.first(length), bitmap.first(words), smallest_[i]);
    sums = sums.subspan(length);
    bitmap = bitmap.subspan(words);
  }
  if (!sum_finite_) writer.NotFinite();
  return writer.Finish(order_.lossless);
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
