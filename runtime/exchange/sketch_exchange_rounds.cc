// The content of a sketch exchange's rounds: the union, the numbers, and the result.
#include <fmt/format.h>

#include <algorithm>
#include <cassert>
#include <cmath>
#include <cstring>
#include <functional>
#include <iterator>
#include <limits>
#include <utility>

#include "runtime/compress/index_coding.h"
#include "runtime/compress/packed_numbers.h"
#include "runtime/exchange/sketch_exchange.h"

namespace adaptive_train {
namespace {

/// into[i] = combine(into[i], from[i]), word by word.
template <class Word, class Combine>
void Fold(std::span<std::byte> into, std::span<const std::byte> from, Combine combine) {
  assert(into.size() == from.size() && into.size() % sizeof(Word) == 0);
  for (std::size_t i = 0; i < into.size(); i += sizeof(Word)) {
    Word a, b;
    std::memcpy(&a, into.data() + i, sizeof a);
    std::memcpy(&b, from.data() + i, sizeof b);
    a = combine(a, b);
    std::memcpy(into.data() + i, &a, sizeof a);
  }
}

/// Whether a bitmap of these pieces has bits set past their ends.
bool PastTheEnd(PieceLengths pieces, std::span<const std::byte> bitmap) {
  for (const std::int64_t length : pieces) {
    const std::size_t words = BitmapWords(length);
    if (length % 64 != 0 && LoadWord(bitmap, 8 * (words - 1)) >> (length % 64) != 0) return true;
    bitmap = bitmap.subspan(8 * words);
  }
  return false;
}

bool Includes(std::span<const std::byte> whole, std::span<const std::byte> part) {
  std::uint64_t missing = 0;
  for (std::size_t i = 0; i < part.size(); i += sizeof missing)
    missing |= LoadWord(part, i) & ~LoadWord(whole, i);
  return missing == 0;
}

}  // namespace

void SketchExchange::MeasureValues() {
  for (const float value : order_.values) {
    order_.finite &= std::isfinite(value);
    largest_ = std::max(largest_, std::abs(value));
  }
  finite_ = order_.finite;
  if (!finite_) largest_ = 0;
}

Result<SketchMessage> SketchExchange::Read(SketchPhase phase, std::size_t peer,
                                           std::span<const std::byte> bytes) const {
  const std::size_t owner = phase == part_phase_ ? Own() : peer;
  auto message = ReadSketchMessage(bytes, Kind(phase), Bytes(owner));
  if (!message || !message->finite) return message;
  if (auto wrong = Wrong(phase, owner, *message); !wrong.empty())
    return Fail(std::move(wrong), ExitCode::kRankFailure);
  return message;
}

/// Empty if the message is correct. A union without an element of this rank, or ranks with
/// different quanta, would lead to wrong sums that nobody could detect.
std::string SketchExchange::Wrong(SketchPhase phase, std::size_t owner,
                                  const SketchMessage& message) const {
  if (part_phase_ != SketchPhase::kSelected)
    return message.largest == largest_ ? "" : "its largest value is not this rank's";
  if (PastTheEnd(order_.chunks.pieces[owner], message.payload)) return "elements past the end";
  if (phase == SketchPhase::kSelected) return "";
  if (!order_.finite) return "it does not say that this rank's values are not finite";
  if (!Includes(message.payload, own_parts_.subspan(BeginOf(owner), Bytes(owner))))
    return "elements of this rank are missing";
  if (message.largest < largest_) return "its largest value is below one of this rank's";
  return "";
}

void SketchExchange::AddPart(const SketchMessage& message) {
  finite_ &= message.finite;
  if (!message.finite) return;
  const auto total = total_.subspan(BeginOf(Own()), Bytes(Own()));
  if (part_phase_ == SketchPhase::kSelected) {
    largest_ = std::max(largest_, message.largest);
    Fold<std::uint64_t>(total, message.payload, std::bit_or());
  } else {
    Fold<std::uint32_t>(total, message.payload, std::plus());
  }
}

void SketchExchange::KeepTotal(std::size_t owner, const SketchMessage& message) {
  finite_ &= message.finite;
  if (!message.finite) return;
  largest_ = std::max(largest_, message.largest);
  std::ranges::copy(message.payload, total_.subspan(BeginOf(owner)).begin());
}

void SketchExchange::EndOfRound() {
  if (Failed()) return;
  if (!finite_) return WriteNotFinite();
  if (part_phase_ == SketchPhase::kSelected) return SumNumbers();
  if (unfinished_) {
    std::ranges::transform(sums_, numbers_.begin(),
                           [](std::uint32_t sum) { return static_cast<std::int32_t>(sum); });
  } else if (!sketch_->Decode(sums_, numbers_)) {
    return Note(
        -1, fmt::format("the sketches of bucket {} are not of one graph", order_.chunks.bucket));
  }
  WriteResult();
}

void SketchExchange::SumNumbers() {
  fixed_point_.emplace(largest_, Lane().size);
  numbers_ = PackNumbers(union_, order_.bitmap, order_.values, *fixed_point_);
  sketch_.emplace(numbers_.size(), SketchSeed(order_.chunks.bucket, order_.step));
  unfinished_ = !sketch_->peels();
  if (unfinished_) {
    cells_.assign(numbers_.begin(), numbers_.end());
  } else {
    cells_ = sketch_->Encode(numbers_);
  }
  sums_.resize(cells_.size());
  StartRound(unfinished_ ? SketchPhase::kPacked : SketchPhase::kSketch,
             std::as_bytes(std::span(cells_)), std::as_writable_bytes(std::span(sums_)));
}

void SketchExchange::WriteResult() {
  std::vector<std::int64_t> pieces;
  for (const auto& chunk : order_.chunks.pieces)
    std::ranges::copy(chunk, std::back_inserter(pieces));
  finite_ = UnpackNumbers(pieces, union_, numbers_, *fixed_point_, order_.result);
  if (!finite_) WriteNotFinite();
}

void SketchExchange::WriteNotFinite() {
  std::ranges::fill(order_.result, 0.0f);
  if (!order_.result.empty()) order_.result[0] = std::numeric_limits<float>::quiet_NaN();
}

}  // namespace adaptive_train
