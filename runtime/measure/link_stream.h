// The bandwidth of a link, measured where the bytes arrive.
#pragma once

#include <deque>
#include <vector>

#include "runtime/measure/link_operation.h"
#include "runtime/measure/link_statistics.h"

namespace adaptive_train {

/// Which way bytes go, seen from this end.
struct StreamWays {
  bool send = false;
  bool receive = false;
};

/// One end of a stream of chunks in one or both directions; the other end is made with the other
/// ways. The receiver grants each chunk and its size, so that no more than a few are under way and
/// both ends agree on each one. It lets the first half megabyte pass (a full token bucket and a
/// connection that starts slowly both lie), then takes the slope of bytes over arrival times.
class LinkStream final : public LinkOperation {
 public:
  /// `latency` in seconds: chunks grow until those under way cover it. `seconds` is how long a
  /// receiver looks at arrivals.
  LinkStream(std::string name, const LinkEnd& end, bool first, StreamWays ways, double latency,
             double seconds);

  void Start() override;

  /// After Done() without failure, at the receiver.
  const LinkSlope& Received() const { return received_; }

 private:
  void SendChunk(std::size_t bytes);
  void ReceiveGrant();
  void ReceiveChunk(std::size_t bytes);
  void Grant(std::size_t bytes);
  void OnChunk(std::size_t bytes);
  bool Judge(const Arrival& now);
  void ChooseSize(const Arrival& now);
  void SideOver();

  const bool first_;
  const StreamWays ways_;
  const double latency_;
  const double seconds_;
  int sides_left_ = 0;

  std::vector<std::byte> outgoing_;
  std::uint64_t granted_ = 0;  // as received: bytes of a further chunk, 0 = no more

  std::vector<std::byte> incoming_;   // chunks overwrite each other: nobody looks at them
  std::deque<std::uint64_t> grants_;  // sent, kept until the stream is over
  std::size_t chunk_;
  int chunks_left_ = 0;  // granted, not there yet
  int steady_ = 0;       // chunks since their size grew
  bool enough_ = false;
  double began_ = 0;
  double bytes_ = 0;
  std::deque<Arrival> recent_;
  std::vector<Arrival> arrivals_;  // after the start was let pass
  LinkSlope received_;
};

}  // namespace adaptive_train
