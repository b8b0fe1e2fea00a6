// One bucket's exchange as a count sketch of its selected elements, sized from their union over the
// ranks (TAGC, Polyakov, Dukhanov, Spirin 2025, algorithm 1; LHC, Li et al. 2024).
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "runtime/comm/message_operation.h"
#include "runtime/compress/count_sketch.h"
#include "runtime/compress/fixed_point.h"
#include "runtime/compress/sketch_message.h"
#include "runtime/exchange/owner_exchange.h"

namespace adaptive_train {

/// What one rank brings to the exchange of one bucket.
struct SketchExchangeOrder {
  BucketChunks chunks;
  std::int64_t step = 0;
  /// The bucket's selected elements: its pieces one after the other, each in BitmapWords(length)
  /// words with zeros past the end.
  std::vector<std::uint64_t> bitmap;
  /// Those elements' values, in ascending order of their places.
  std::vector<float> values;
  /// false: a value of the bucket is not finite, and nothing of this rank is sent. It becomes false
  /// by itself where one of `values` is not.
  bool finite = true;
  std::span<float> result;  // the bucket, the chunks' lengths together
  /// The tag of a lane of an earlier SketchExchange that is over on this rank, if one is to be
  /// looked into for a last message that came twice.
  std::optional<std::uint64_t> earlier_lane;
};

/// The tag that `source` sends under. At most 4096 ranks. An OwnerExchange on the next lane, which
/// looks for what came twice on this one, looks for other tags: here messages may wait for their
/// round.
std::uint64_t SketchTag(const CollectiveLane& lane, SketchPhase phase, int source);

/// Rounds through the owners, of which each adds up a range of the whole and sends the total to
/// all:
///   1. the bitmaps, by OR, and the largest magnitude;
///   2. a count sketch of the values at the union's places, as FixedPoint makes them whole numbers
///      by that magnitude. The graph of the sketch is known when the union is; where it cannot be
///      peeled the numbers themselves are summed instead, one cell for each element of the union
///      ("unfinished").
/// Then every rank peels, and writes number * quantum where the union is, rounded to float32, and 0
/// elsewhere. Numbers are added exactly, so all ranks get the same bits in every run, peeled or
/// not. With n elements, P ranks and a union of u, a rank sends (P-1)/P (2 n / 8 + 8
/// CountSketch::CellsFor(u)) bytes and a header to each rank in each phase.
///
/// If any rank's values are not finite, or a sum is not, the bucket's first element becomes NaN on
/// all ranks and the others 0.
///
/// Every message is checked before it is believed. One that does not hold fails the operation and
/// names its rank; what else is under way of the round may then still arrive, so that every rank
/// finds out for itself. A message that came twice fails this exchange, or one that names this
/// one's lane as earlier; it is never taken for another. Whose message has not come is named by
/// Cancel.
///
/// Runs on the executor's thread. The order's result must stay until the operation is over.
class SketchExchange final : public CollectiveOperation {
 public:
  SketchExchange(std::string name, CollectiveLane lane, SketchExchangeOrder order);

  // After Done(), if it went well:
  const SketchExchangeOrder& Order() const { return order_; }
  std::uint64_t LaneTag() const { return Lane().tag; }
  /// The same on all ranks.
  bool finite() const { return finite_; }
  /// The sketch could not be peeled, and the numbers were summed without it. The same on all ranks.
  bool unfinished() const { return unfinished_; }
  /// What of this rank's values is in the sums: FixedPoint::Sent of each. Only if finite().
  const FixedPoint& fixed_point() const { return *fixed_point_; }

 private:
  /// What another rank sends.
  struct Incoming {
    std::unique_ptr<std::byte[]> buffer;  // not initialised: it is written whole
    std::shared_ptr<Part> receive;        // under way
  };
  using IncomingOf = std::vector<Incoming>;  // [ranks]; the own entry stays empty

  void Begin() override;
  void End() override;
  void NoteMissing(const std::string& cause) override;

  std::size_t BeginOf(std::size_t owner) const;  // its range of the round, in bytes
  std::size_t Bytes(std::size_t owner) const { return BeginOf(owner + 1) - BeginOf(owner); }
  SketchMessageKind Kind(SketchPhase phase) const {
    return {phase, order_.chunks.bucket, order_.step};
  }
  IncomingOf& Of(SketchPhase phase) { return phase == part_phase_ ? parts_ : totals_; }
  SketchPhase TotalPhase() const;

  void MeasureValues();
  void StartRound(SketchPhase part_phase, std::span<const std::byte> parts,
                  std::span<std::byte> total);
  void ReceiveMessage(SketchPhase phase, std::size_t peer);
  void SendMessage(SketchPhase phase, std::size_t peer,
                   const std::shared_ptr<std::vector<std::byte>>& bytes);
  void OnReceived(SketchPhase phase, std::size_t peer, const std::string& cause, std::size_t bytes);

  void Accept(SketchPhase phase, std::size_t peer, const Result<SketchMessage>& message);
  Result<SketchMessage> Read(SketchPhase phase, std::size_t peer,
                             std::span<const std::byte> bytes) const;
  std::string Wrong(SketchPhase phase, std::size_t owner, const SketchMessage& message) const;
  void AddPart(const SketchMessage& message);
  void KeepTotal(std::size_t owner, const SketchMessage& message);
  void EndOfParts();
  void EndOfRound();

  void SumNumbers();
  void WriteResult();
  void WriteNotFinite();

  std::string About(SketchPhase phase) const;
  void CancelReceives(const IncomingOf& incoming);
  void LookForDuplicates();

  SketchExchangeOrder order_;
  std::vector<std::size_t> word_begins_;  // [ranks + 1], the chunks in the bitmap
  bool finite_ = true;                    // as far as known
  float largest_ = 0;                     // of the ranks' values, as far as known
  std::vector<std::uint64_t> union_;      // of the bitmaps
  std::optional<FixedPoint> fixed_point_;
  std::optional<CountSketch> sketch_;
  bool unfinished_ = false;
  std::vector<std::int32_t> numbers_;  // [union]: this rank's, and in the end the sums
  std::vector<std::uint32_t> cells_;   // this rank's: a sketch of the numbers, or they themselves
  std::vector<std::uint32_t> sums_;    // of the cells over the ranks

  // The round.
  SketchPhase part_phase_ = SketchPhase::kSelected;
  std::span<const std::byte> own_parts_;  // of all owners' ranges
  std::span<std::byte> total_;
  IncomingOf parts_, totals_;
  std::size_t parts_in_ = 0, totals_in_ = 0;  // messages, right or wrong, the own ones too

  bool part_missing_ = false;  // one came and did not hold
};

}  // namespace adaptive_train
