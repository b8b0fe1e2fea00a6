#include "runtime/exchange/owner_exchange.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cassert>
#include <cmath>
#include <limits>
#include <utility>

namespace adaptive_train {
namespace {

// The low 16 bits of a tag: exchange (1 bit), phase (1), source rank (14).
constexpr std::uint64_t kExchange = std::uint64_t{1} << 15, kSums = std::uint64_t{1} << 14;

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

std::uint64_t ExchangeTag(const CollectiveLane& lane, ExchangePhase phase, int source) {
  assert(source < (1 << 14));
  return lane.tag | kExchange | (phase == ExchangePhase::kSum ? kSums : 0) |
         static_cast<std::uint64_t>(source);
}

OwnerExchange::OwnerExchange(std::string name, CollectiveLane lane, OwnerExchangeOrder order)
    : CollectiveOperation(std::move(name), lane),
      order_(std::move(order)),
      begins_(Size() + 1),
      messages_(Size()),
      sums_(Size()) {
  assert(order_.chunks.pieces.size() == Size() && order_.messages.size() == Size());
  for (std::size_t r = 0; r < Size(); ++r) {
    begins_[r + 1] = begins_[r];
    for (const std::int64_t length : order_.chunks.pieces[r])
      begins_[r + 1] += static_cast<std::size_t>(length);
  }
  assert(order_.result.size() == begins_.back());
}

std::span<float> OwnerExchange::Chunk(std::size_t owner) const {
  return order_.result.subspan(begins_[owner], begins_[owner + 1] - begins_[owner]);
}

void OwnerExchange::Begin() {
  sum_.resize(Chunk(Own()).size());
  std::size_t words = 0;
  for (const std::int64_t length : order_.chunks.pieces[Own()]) words += BitmapWords(length);
  union_.resize(words);
  smallest_.assign(order_.chunks.pieces[Own()].size(), kernels::kMostSmallest);
  // Posts all receives first: an unclaimed message is then always a duplicate.
  for (std::size_t i = 1; i < Size(); ++i) {
    const std::size_t peer = (Own() + i) % Size();
    ReceiveMessage(ExchangePhase::kMessage, peer);
    if (order_.gather) ReceiveMessage(ExchangePhase::kSum, peer);
  }
  for (std::size_t i = 1; i < Size(); ++i) {
    const std::size_t peer = (Own() + i) % Size();
    SendTo(peer, ExchangeTag(Lane(), ExchangePhase::kMessage, Lane().rank), order_.messages[peer]);
  }
  AcceptMessage(Own(), order_.messages[Own()]);
}

void OwnerExchange::ReceiveMessage(ExchangePhase phase, std::size_t peer) {
  const std::size_t owner = phase == ExchangePhase::kMessage ? Own() : peer;
  const std::size_t capacity = MaxMessageBytes(order_.chunks.pieces[owner], order_.format);
  Incoming& incoming = Of(phase)[peer];
  incoming.buffer = std::make_unique_for_overwrite<std::byte[]>(capacity);
  incoming.receive =
      ReceiveUpTo(Lane().RankOf(peer), ExchangeTag(Lane(), phase, static_cast<int>(peer)),
                  {incoming.buffer.get(), capacity},
                  [this, phase, peer](const std::string& cause, std::size_t bytes) {
                    OnReceived(phase, peer, cause, bytes);
                  });
}

void OwnerExchange::OnReceived(ExchangePhase phase, std::size_t peer, const std::string& cause,
                               std::size_t bytes) {
  Incoming& incoming = Of(phase)[peer];
  incoming.receive.reset();
  const std::span<const std::byte> came(incoming.buffer.get(), bytes);
  if (phase == ExchangePhase::kMessage) {
    cause.empty() ? AcceptMessage(peer, came) : MessageMissing(peer, cause);
  } else if (cause.empty()) {
    AcceptSum(peer, came);
  } else {
    Note(Lane().RankOf(peer), About(phase) + ": " + cause);  // kept only if it is the first failure
  }
}

void OwnerExchange::End() {
  if (!Failed()) LookForDuplicates();
  union_ = {};
  packed_sum_ = {};
  if (!order_.keep) {
    order_.messages = {};
    sum_ = {};
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
    SendTo((Own() + i) % Size(), ExchangeTag(Lane(), ExchangePhase::kSum, Lane().rank),
           packed_sum_);
}

/// Pieces of which every element came are sent whole; of the others, what is not zero.
std::vector<std::byte> OwnerExchange::PackedSum() {
  SparseMessageWriter writer(order_.chunks.bucket, order_.format);
  const PieceLengths pieces = order_.chunks.pieces[Own()];
  const float* sums = sum_.data();
  std::span<std::uint64_t> bitmap = union_;
  std::vector<float> values;  // enough for any format
  for (std::size_t i = 0; sum_finite_ && i < pieces.size(); ++i) {
    const auto words = bitmap.first(BitmapWords(pieces[i]));
    const auto length = static_cast<std::size_t>(pieces[i]);
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
  sums_[owner].buffer.reset();
}

void OwnerExchange::WriteNotFinite(std::size_t owner) {
  finite_ = false;
  const std::span<float> chunk = Chunk(owner);
  std::ranges::fill(chunk, 0.0f);
  if (!chunk.empty()) chunk[0] = std::numeric_limits<float>::quiet_NaN();
}

void OwnerExchange::NoteMissing(const std::string& cause) {
  for (const auto phase : {ExchangePhase::kMessage, ExchangePhase::kSum}) {
    for (std::size_t peer = 0; peer < Size(); ++peer) {
      if (Of(phase)[peer].receive)
        Note(Lane().RankOf(peer), About(phase) + " has not come: " + cause);
    }
  }
}

std::string OwnerExchange::About(ExchangePhase phase) const {
  return fmt::format("its {} of bucket {}", phase == ExchangePhase::kMessage ? "message" : "sum",
                     order_.chunks.bucket);
}

void OwnerExchange::CancelSums() {
  for (const auto& incoming : sums_) CancelPart(incoming.receive);
}

/// Receives are posted before any message, so an unclaimed message is a duplicate. A peer's
/// messages arrive in the order in which they are sent, so a second message of the first phase is
/// here by now. One of the second phase may come later; an exchange that has this lane as its
/// earlier one detects it.
void OwnerExchange::LookForDuplicates() {
  for (const auto lane : {std::optional(Lane().tag), order_.earlier_lane}) {
    if (!lane) continue;
    const auto tag = transport().Unclaimed(*lane | kExchange, ~(kExchange - 1));
    if (!tag) continue;
    const auto phase = (*tag & kSums) == 0 ? ExchangePhase::kMessage : ExchangePhase::kSum;
    const std::size_t source = *tag & (kSums - 1);
    if (source >= Size()) return Note(-1, "a message came that no member sent");
    return Note(Lane().RankOf(source), lane == Lane().tag
                                           ? About(phase) + ": it came twice"
                                           : "a message of an earlier exchange came twice");
  }
}

}  // namespace adaptive_train
