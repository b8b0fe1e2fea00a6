// Measures the bandwidth of a link where the bytes arrive.
#pragma once

#include <deque>
#include <vector>

#include "runtime/measure/link_operation.h"
#include "runtime/measure/link_statistics.h"

namespace adaptive_train {

/// How a receiver judges a link. It skips `passed_bytes`, then observes arrivals for
/// `least_seconds`, and for up to `most_seconds` while the rate's spread exceeds `spread`.
struct StreamJudgement {
  double passed_bytes = 0;
  double least_seconds = 0;
  double most_seconds = 0;
  double spread = 0;
};

/// One end of a stream of chunks in one direction. The receiver grants each chunk and its size, so
/// that only a few are under way and both ends agree on each one. It skips the first chunks, since
/// a full token bucket and a slow start of the connection both distort them. The result is the
/// slope of bytes over arrival times.
class LinkStream final : public LinkOperation {
 public:
  /// `latency` in seconds: chunks grow until those under way cover it.
  LinkStream(std::string name, const LinkEnd& end, bool sends, double latency,
             const StreamJudgement& judgement);

  /// After Done() without failure, at the receiver.
  const LinkSlope& Received() const { return received_; }
  /// Bytes of all chunks that this end has sent or received; after Done().
  double Moved() const { return bytes_; }

 private:
  void Begin() override;
  void SendChunk(std::size_t bytes);
  void ReceiveGrant();
  void ReceiveChunk(std::size_t bytes);
  void Grant(std::size_t bytes);
  void OnChunk(std::size_t bytes);
  bool Judge(const Arrival& now);
  void ChooseSize(const Arrival& now);

  const bool sends_;
  const double latency_;
  const StreamJudgement judgement_;
  double next_look_;                // seconds of arrivals
  std::vector<std::byte> payload_;  // of every chunk; its content is unused

  // State of the sender.
  std::uint64_t granted_ = 0;  // from a grant: bytes of the next chunk, 0 = no more

  // State of the receiver.
  std::deque<std::uint64_t> grants_;  // sent, kept until the stream is over
  std::size_t chunk_;
  int steady_ = 0;  // chunks since their size grew
  bool enough_ = false;
  double began_ = 0;
  double bytes_ = 0;
  std::deque<Arrival> recent_;
  std::vector<Arrival> arrivals_;  // after the skipped start
  LinkSlope received_;
};

}  // namespace adaptive_train
