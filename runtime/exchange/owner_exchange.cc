#include "runtime/exchange/owner_exchange.h"

#include <fmt/format.h>

#include <cassert>
#include <utility>

namespace adaptive_train {
namespace {

// The low 16 bits of a tag: exchange (1 bit), phase (1), source rank (14).
constexpr std::uint64_t kExchange = std::uint64_t{1} << 15, kSums = std::uint64_t{1} << 14;

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
  sum_.assign(Chunk(Own()).size(), 0);
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
    SendTo(peer, ExchangeTag(Lane(), ExchangePhase::kMessage, Lane().rank), order_.messages[peer],
           {}, HowToSend());
  }
  AcceptMessage(Own(), order_.messages[Own()]);
}

void OwnerExchange::ReceiveMessage(ExchangePhase phase, std::size_t peer) {
  const std::size_t owner = phase == ExchangePhase::kMessage ? Own() : peer;
  Incoming& incoming = Of(phase)[peer];
  incoming.buffer.resize(MaxMessageBytes(order_.chunks.pieces[owner], order_.format));
  incoming.receive = ReceiveUpTo(
      Lane().RankOf(peer), ExchangeTag(Lane(), phase, static_cast<int>(peer)), incoming.buffer,
      [this, phase, peer](const std::string& cause, std::size_t bytes) {
        OnReceived(phase, peer, cause, bytes);
      });
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
