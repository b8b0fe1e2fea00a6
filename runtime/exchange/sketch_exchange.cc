// Sends and receives the messages of a sketch exchange; sketch_exchange_rounds.cc has their
// content.
#include "runtime/exchange/sketch_exchange.h"

#include <fmt/format.h>

#include <cassert>
#include <utility>

namespace adaptive_train {
namespace {

// The low 16 bits of a tag: 0 (1 bit, which is 1 in OwnerExchange), phase (3), source rank (12).
constexpr int kSourceBits = 12;
constexpr std::uint64_t kSourceMask = (std::uint64_t{1} << kSourceBits) - 1;
constexpr std::uint64_t kPhaseMask = 7;
constexpr std::uint64_t kLaneMask = ~(kPhaseMask << kSourceBits | kSourceMask);

}  // namespace

std::uint64_t SketchTag(const CollectiveLane& lane, SketchPhase phase, int source) {
  assert(static_cast<std::uint64_t>(source) <= kSourceMask);
  return lane.tag | static_cast<std::uint64_t>(phase) << kSourceBits |
         static_cast<std::uint64_t>(source);
}

SketchExchange::SketchExchange(std::string name, CollectiveLane lane, SketchExchangeOrder order)
    : CollectiveOperation(std::move(name), lane),
      order_(std::move(order)),
      word_begins_(Size() + 1),
      parts_(Size()),
      totals_(Size()) {
  assert(order_.chunks.pieces.size() == Size());
  for (std::size_t r = 0; r < Size(); ++r) {
    word_begins_[r + 1] = word_begins_[r];
    for (const std::int64_t length : order_.chunks.pieces[r])
      word_begins_[r + 1] += BitmapWords(length);
  }
  assert(order_.bitmap.size() == word_begins_.back());
}

void SketchExchange::Begin() {
  MeasureValues();
  union_.resize(word_begins_.back());
  StartRound(SketchPhase::kSelected, std::as_bytes(std::span(order_.bitmap)),
             std::as_writable_bytes(std::span(union_)));
}

std::size_t SketchExchange::BeginOf(std::size_t owner) const {
  if (part_phase_ == SketchPhase::kSelected) return 8 * word_begins_[owner];
  return 4 * (cells_.size() * owner / Size());
}

SketchPhase SketchExchange::TotalPhase() const {
  return static_cast<SketchPhase>(static_cast<int>(part_phase_) + 1);
}

void SketchExchange::StartRound(SketchPhase part_phase, std::span<const std::byte> parts,
                                std::span<std::byte> total) {
  part_phase_ = part_phase;
  own_parts_ = parts;
  total_ = total;
  parts_in_ = totals_in_ = 0;
  for (std::size_t i = 1; i < Size(); ++i) {
    const std::size_t peer = (Own() + i) % Size();
    ReceiveMessage(part_phase_, peer);
    ReceiveMessage(TotalPhase(), peer);
  }
  const auto own_part = [this](std::size_t owner) {
    return SketchMessage{finite_, largest_, own_parts_.subspan(BeginOf(owner), Bytes(owner))};
  };
  for (std::size_t i = 1; i < Size(); ++i) {
    const std::size_t peer = (Own() + i) % Size();
    SendMessage(part_phase_, peer,
                std::make_shared<std::vector<std::byte>>(
                    WriteSketchMessage(Kind(part_phase_), own_part(peer))));
  }
  AddPart(own_part(Own()));
  if (++parts_in_ == Size()) EndOfParts();
}

void SketchExchange::ReceiveMessage(SketchPhase phase, std::size_t peer) {
  const std::size_t capacity = kSketchHeaderBytes + Bytes(phase == part_phase_ ? Own() : peer);
  Incoming& incoming = Of(phase)[peer];
  incoming.buffer = std::make_unique_for_overwrite<std::byte[]>(capacity);
  incoming.receive =
      ReceiveUpTo(Lane().RankOf(peer), SketchTag(Lane(), phase, static_cast<int>(peer)),
                  {incoming.buffer.get(), capacity},
                  [this, phase, peer](const std::string& cause, std::size_t bytes) {
                    OnReceived(phase, peer, cause, bytes);
                  });
}

void SketchExchange::SendMessage(SketchPhase phase, std::size_t peer,
                                 const std::shared_ptr<std::vector<std::byte>>& bytes) {
  // The message is kept until it has left.
  SendTo(peer, SketchTag(Lane(), phase, Lane().rank), *bytes, [bytes] {});
}

void SketchExchange::OnReceived(SketchPhase phase, std::size_t peer, const std::string& cause,
                                std::size_t bytes) {
  Incoming& incoming = Of(phase)[peer];
  incoming.receive.reset();
  const auto buffer = std::move(incoming.buffer);  // the next round may start below
  if (cause.empty()) {
    Accept(phase, peer, Read(phase, peer, {buffer.get(), bytes}));
  } else {
    Accept(phase, peer, Fail(cause, ExitCode::kRankFailure));
  }
}

void SketchExchange::End() {
  if (!Failed()) LookForDuplicates();
  union_ = {};
  sketch_.reset();
  numbers_ = {};
  cells_ = {};
  sums_ = {};
}

/// The failure of a cancelled message is already known.
void SketchExchange::Accept(SketchPhase phase, std::size_t peer,
                            const Result<SketchMessage>& message) {
  if (!message) Note(Lane().RankOf(peer), About(phase) + ": " + message.error().message);
  if (phase == part_phase_) {
    part_missing_ |= !message;
    if (message) AddPart(*message);
    if (++parts_in_ == Size()) EndOfParts();
  } else {
    if (message) KeepTotal(peer, *message);
    if (++totals_in_ == Size()) EndOfRound();
  }
}

void SketchExchange::EndOfParts() {
  // Nobody would get this rank's total, and other totals may not come either. An error in another's
  // total does not stop this rank's own total: the others wait for it.
  if (part_missing_ || Cancelled()) return CancelReceives(totals_);
  const auto bytes = std::make_shared<std::vector<std::byte>>(WriteSketchMessage(
      Kind(TotalPhase()), {finite_, largest_, total_.subspan(BeginOf(Own()), Bytes(Own()))}));
  for (std::size_t i = 1; i < Size(); ++i) SendMessage(TotalPhase(), (Own() + i) % Size(), bytes);
  if (++totals_in_ == Size()) EndOfRound();
}

void SketchExchange::NoteMissing(const std::string& cause) {
  for (const auto phase : {part_phase_, TotalPhase()}) {
    for (std::size_t peer = 0; peer < Size(); ++peer) {
      if (Of(phase)[peer].receive)
        Note(Lane().RankOf(peer), About(phase) + " has not come: " + cause);
    }
  }
}

std::string SketchExchange::About(SketchPhase phase) const {
  return fmt::format("its {} of bucket {}", NameOf(phase), order_.chunks.bucket);
}

void SketchExchange::CancelReceives(const IncomingOf& incoming) {
  for (const Incoming& one : incoming) CancelPart(one.receive);
}

/// Everything that a correct peer sends has been received by now, so an unclaimed message is a
/// duplicate. A second message of the last phase may come later; an exchange that has this lane as
/// its earlier one detects it.
void SketchExchange::LookForDuplicates() {
  for (const auto lane : {std::optional(Lane().tag), order_.earlier_lane}) {
    if (!lane) continue;
    const auto tag = transport().Unclaimed(*lane, kLaneMask);
    if (!tag) continue;
    const auto phase = static_cast<SketchPhase>(*tag >> kSourceBits & kPhaseMask);
    const std::size_t source = *tag & (kSourceMask);
    if (source >= Size()) return Note(-1, "a message came that no member sent");
    return Note(Lane().RankOf(source), lane == Lane().tag && static_cast<int>(phase) < kSketchPhases
                                           ? About(phase) + ": it came twice"
                                           : "a message of an earlier exchange came twice");
  }
}

}  // namespace adaptive_train
