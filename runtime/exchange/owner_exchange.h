// Exchanges one bucket through the owners of its chunks. Every rank sends each owner its selected
// elements of the owner's chunk; the owner adds them up and sends the sum to all.
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

/// How a bucket is cut: chunk r belongs to member r of the lane. A chunk's pieces are contiguous,
/// and so are the chunks.
struct BucketChunks {
  std::uint32_t bucket = 0;                       // unique among exchanges under way or just before
  std::vector<std::vector<std::int64_t>> pieces;  // [members], lengths in elements
};

/// One rank's input to the exchange of one bucket.
struct OwnerExchangeOrder {
  BucketChunks chunks;
  ValueFormat format = ValueFormat::kBFloat16;                                    // of both phases
  SparseMessageWriter::Lossless lossless = SparseMessageWriter::Lossless::kNone;  // of the sum
  /// [members], the bytes of a SparseMessage from this rank to each owner, including itself.
  std::vector<MessageBytes> messages;
  /// false: the owners keep the sums, and only the own chunk of result is written.
  bool gather = true;
  /// false: messages and OwnSum are released when the operation is over.
  bool keep = true;
  std::span<float> result;  // the bucket, the chunks' lengths together
  /// The tag of an earlier OwnerExchange's lane to check for a duplicate sum, if any. That exchange
  /// must have started on this rank.
  std::optional<std::uint64_t> earlier_lane;
};

/// The two messages from each rank to each other: its part of a chunk, and its chunk's sum.
enum class ExchangePhase : std::uint8_t { kMessage, kSum };

/// The tag of messages from member `source`, at most 16384 members. No step of a ring has such a
/// tag.
std::uint64_t ExchangeTag(const CollectiveLane& lane, ExchangePhase phase, int source);

/// A reduce-scatter directly to the owners, then an all-gather of the sums. The first sends k
/// (P-1)/P entries per rank (compared by Li et al., Ok-Topk, 2022); the second sends the union of
/// what was selected, rounded to `format`. The owner adds in rank order, in float32, so all ranks
/// get the same bits in every run. The owner's chunk gets the rounded sum too; OwnSum keeps the
/// unrounded one. kFloat8 sums are rounded to the sizes from the smallest that a rank sent;
/// anything nearer to 0 is dropped. If any rank's values or their sum are not finite, the chunk's
/// first element becomes NaN on all ranks and the others 0.
///
/// Every message is checked before use. An invalid one fails the operation and names its rank;
/// other messages under way may still arrive, so that every rank detects errors itself. A duplicate
/// message fails this exchange, or the one that has this lane as its earlier one. It is never taken
/// for another message. Cancel names the ranks whose messages have not come.
///
/// Runs on the executor's thread. The order's buffers must stay valid until the operation is over.
class OwnerExchange final : public CollectiveOperation {
 public:
  OwnerExchange(std::string name, CollectiveLane lane, OwnerExchangeOrder order);

  std::uint64_t LaneTag() const { return Lane().tag; }

  // After Done():
  const OwnerExchangeOrder& Order() const { return order_; }
  /// The unrounded sums of this rank's chunk. If a value was not finite: empty, or without `gather`
  /// the sums over the other ranks.
  std::span<const float> OwnSum() const { return sum_; }
  /// Whether all chunks known to this rank are finite: all of them, or without `gather` the own
  /// one. With `gather` all ranks agree.
  bool finite() const { return finite_; }

 private:
  /// The message from another rank, and its content.
  struct Incoming {
    MessageBytes buffer;
    std::shared_ptr<Part> receive;  // under way
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
  MessageBytes PackedSum();
  void KeepOwnSum();
  void WriteNotFinite(std::size_t owner);

  /// Links are slow where messages are compressed. Others may be fast, or in a node: a copy costs.
  Sending HowToSend() const {
    return order_.format == ValueFormat::kFloat32 ? Sending::kWhenAsked : Sending::kAtOnce;
  }
  std::string About(ExchangePhase phase) const;
  void CancelSums();
  void LookForDuplicates();

  OwnerExchangeOrder order_;
  std::vector<std::size_t> begins_;        // [ranks + 1], the chunks in the bucket
  std::vector<Incoming> messages_, sums_;  // [ranks]; this rank's entry has no buffer
  std::size_t arrived_ = 0;                // messages, valid or not, including this rank's
  std::size_t added_ = 0;                  // ranks whose message is in the sum
  kernels::PooledVector<float> sum_;
  std::vector<std::uint64_t> union_;  // what was selected: piece after piece
  std::vector<int> smallest_;         // [pieces of the own chunk], the least received
  MessageBytes packed_sum_;           // as it is sent
  bool sum_finite_ = true;            // the own chunk
  bool finite_ = true;                // all chunks seen
  bool message_missing_ = false;      // one was invalid, or will not come
};

}  // namespace adaptive_train
