// One bucket's exchange through the owners of its chunks: every rank sends each owner its selected
// elements of the owner's chunk, the owner adds them up and sends the sum to all.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "runtime/comm/message_operation.h"
#include "runtime/compress/sparse_message.h"

namespace adaptive_train {

/// How a bucket is cut: chunk r belongs to member r of the lane; a chunk's pieces lie one after the
/// other, and so do the chunks.
struct BucketChunks {
  std::uint32_t bucket = 0;  // a number that no other exchange under way or just before bears
  std::vector<std::vector<std::int64_t>> pieces;  // [members], lengths in elements
};

/// What one rank brings to the exchange of one bucket.
struct OwnerExchangeOrder {
  BucketChunks chunks;
  ValueFormat format = ValueFormat::kBFloat16;  // of both phases
  /// [members], what this rank sends to each owner, itself too: SparseMessage's bytes.
  std::vector<std::vector<std::byte>> messages;
  /// false: the owners keep the sums, and result is not written but for the own chunk.
  bool gather = true;
  /// false: messages and OwnSum are given up as soon as the operation is over.
  bool keep = true;
  std::span<float> result;  // the bucket, the chunks' lengths together
  /// The tag of a lane of an earlier OwnerExchange, if one is to be looked into for a sum that came
  /// twice. It has begun on this rank.
  std::optional<std::uint64_t> earlier_lane;
};

/// The two messages that each rank sends each other one: its part of a chunk, and its chunk's sum.
enum class ExchangePhase : std::uint8_t { kMessage, kSum };

/// The tag that member `source` sends under. At most 16384 of them. No step of a ring bears such a
/// tag.
std::uint64_t ExchangeTag(const CollectiveLane& lane, ExchangePhase phase, int source);

/// Reduce-scatter straight to the owners, k (P-1)/P entries sent per rank (Li et al., Ok-Topk,
/// 2022, compares it), then an all-gather of the sums: the union of what was selected, rounded to
/// `format`. The owner adds in the order of the ranks, in float32, so all ranks get the same bits
/// in every run; what all get, the owner gets too, while OwnSum keeps the sum unrounded. A sum of
/// kFloat8 values is rounded to the sizes from the smallest on that a rank sent; what is nearer
/// to 0 is not sent. If any rank's message says that its values are not finite, or their sum is
/// not, the chunk's first element becomes NaN on all ranks and the others 0.
///
/// Every message is checked before it is believed. One that does not hold fails the operation and
/// names its rank; what else is under way may then still arrive, so that every rank finds out for
/// itself. A message that came twice fails this exchange, or one that this lane is earlier to if
/// that is where it is seen; it is never taken for another. Whose message has not come is named by
/// Cancel.
///
/// Runs on the executor's thread. The order's buffers must stay until the operation is over.
class OwnerExchange final : public CollectiveOperation {
 public:
  OwnerExchange(std::string name, CollectiveLane lane, OwnerExchangeOrder order);

  std::uint64_t LaneTag() const { return Lane().tag; }

  // After Done():
  const OwnerExchangeOrder& Order() const { return order_; }
  /// The sums of this rank's chunk before they were rounded. If a value was not finite: empty, or
  /// without `gather` the sums of those ranks' values that were.
  std::span<const float> OwnSum() const { return sum_; }
  /// No chunk that this rank knows of holds a value that is not: all of them, or without `gather`
  /// the own one. With `gather` all ranks say the same.
  bool finite() const { return finite_; }

 private:
  /// What another rank sends, and what was in it.
  struct Incoming {
    std::unique_ptr<std::byte[]> buffer;  // not initialised: pages that stay untouched cost nothing
    std::shared_ptr<Part> receive;        // under way
    std::optional<SparseMessage> message;
  };

  void Begin() override;
  void End() override;
  void NoteMissing(const std::string& cause) override;

  std::span<float> Chunk(std::size_t owner) const;
  std::vector<Incoming>& Of(ExchangePhase phase) {
    return phase == ExchangePhase::kMessage ? messages_ : sums_;
  }

  void ReceiveMessage(ExchangePhase phase, std::size_t peer);
  void OnReceived(ExchangePhase phase, std::size_t peer, const std::string& cause,
                  std::size_t bytes);

  void AcceptMessage(std::size_t peer, std::span<const std::byte> bytes);
  void MessageMissing(std::size_t peer, const std::string& cause);
  void AcceptSum(std::size_t owner, std::span<const std::byte> bytes);
  void AddInOrder();
  void EndOfMessages();
  std::vector<std::byte> PackedSum();
  void KeepOwnSum();
  void WriteNotFinite(std::size_t owner);

  std::string About(ExchangePhase phase) const;
  void CancelSums();
  void LookForDuplicates();

  OwnerExchangeOrder order_;
  std::vector<std::size_t> begins_;        // [ranks + 1], the chunks in the bucket
  std::vector<Incoming> messages_, sums_;  // [ranks]; the own entry has no buffer
  std::size_t arrived_ = 0;  // messages, right or wrong, the own one too
  std::size_t added_ = 0;    // ranks whose message is in the sum
  std::vector<float> sum_;
  std::vector<std::uint64_t> union_;   // what was selected: the pieces one after the other
  std::vector<int> smallest_;          // [pieces of the own chunk], the least of those that came
  std::vector<std::byte> packed_sum_;  // as it is sent
  bool sum_finite_ = true;             // the own chunk
  bool finite_ = true;                 // all chunks seen
  bool message_missing_ = false;       // one was wrong, or will not come
};

}  // namespace adaptive_train
