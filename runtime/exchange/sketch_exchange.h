// Exchanges one bucket as a count sketch of its selected elements, sized by their union over the
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

/// One rank's input to the exchange of one bucket.
struct SketchExchangeOrder {
  BucketChunks chunks;
  std::int64_t step = 0;
  /// The bucket's selected elements, piece after piece, each in BitmapWords(length) words with
  /// zeros past the end.
  std::vector<std::uint64_t> bitmap;
  /// The values of those elements, in ascending order of their places.
  std::vector<float> values;
  /// false: a value of the bucket is not finite, and this rank sends nothing. Set automatically if
  /// one of `values` is not finite.
  bool finite = true;
  std::span<float> result;  // the bucket, the chunks' lengths together
  /// The tag of an earlier SketchExchange's lane to check for a duplicate last message, if any.
  /// That exchange must be over on this rank.
  std::optional<std::uint64_t> earlier_lane;
};

/// The tag of messages from `source`, at most 4096 ranks. An OwnerExchange on the next lane checks
/// other tags for duplicates of this one, since messages may wait here for their round.
std::uint64_t SketchTag(const CollectiveLane& lane, SketchPhase phase, int source);

/// Works in rounds through the owners. Each owner combines its range over the ranks and sends the
/// result to all:
///   1. the bitmaps, by OR, and the largest magnitude;
///   2. a count sketch of the values at the union's places, which FixedPoint turns into integers by
///      that magnitude. The graph of the sketch is known when the union is. If it cannot be peeled
///      the integers themselves are summed instead, one cell for each element of the union
///      ("unfinished").
/// Then every rank peels, and writes number * quantum at the union's places, rounded to float32, and
/// 0 elsewhere. Numbers are added exactly, so all ranks get the same bits in every run, peeled or
/// not. With n elements, P ranks and a union of u, a rank sends (P-1)/P (2 n / 8 + 8
/// CountSketch::CellsFor(u)) bytes and a header to each rank in each phase.
///
/// If any rank's values or a sum are not finite, the bucket's first element becomes NaN on all ranks
/// and the others 0.
///
/// Every message is checked before use. An invalid one fails the operation and names its rank; other
/// messages of the round may still arrive, so that every rank detects errors itself. A duplicate
/// message fails this exchange, or the one that has this lane as its earlier one. It is never taken
/// for another message. Cancel names the ranks whose messages have not come.
///
/// Runs on the executor's thread. The order's result must stay valid until the operation is over.
class SketchExchange final : public CollectiveOperation {
 public:
  SketchExchange(std::string name, CollectiveLane lane, SketchExchangeOrder order);

  // After Done() with success:
  const SketchExchangeOrder& Order() const { return order_; }
  std::uint64_t LaneTag() const { return Lane().tag; }
  /// The same on all ranks.
  bool finite() const { return finite_; }
  /// The sketch could not be peeled, and the numbers were summed without it. The same on all ranks.
  bool unfinished() const { return unfinished_; }
  /// This rank's contribution to the sums is FixedPoint::Sent of each value. Only if finite().
  const FixedPoint& fixed_point() const { return *fixed_point_; }

 private:
  /// The message from another rank.
  struct Incoming {
    std::unique_ptr<std::byte[]> buffer;  // uninitialised: it is overwritten completely
    std::shared_ptr<Part> receive;        // under way
  };
  using IncomingOf = std::vector<Incoming>;  // [ranks]; this rank's entry stays empty

  void Begin() override;
  void End() override;
  void NoteMissing(const std::string& cause) override;

  std::size_t BeginOf(std::size_t owner) const;  // its range in the round, in bytes
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
  std::vector<std::int32_t> numbers_;  // [union]: this rank's, later the sums
  std::vector<std::uint32_t> cells_;   // this rank's: a sketch of the numbers, or the numbers
  std::vector<std::uint32_t> sums_;    // of the cells over the ranks

  // State of the round.
  SketchPhase part_phase_ = SketchPhase::kSelected;
  std::span<const std::byte> own_parts_;  // of all owners' ranges
  std::span<std::byte> total_;
  IncomingOf parts_, totals_;
  std::size_t parts_in_ = 0, totals_in_ = 0;  // messages, valid or not, including this rank's

  bool part_missing_ = false;  // an invalid one came
};

}  // namespace adaptive_train
