// Measures the latency of a link by small messages back and forth.
#pragma once

#include <vector>

#include "runtime/measure/link_operation.h"

namespace adaptive_train {

/// One end of a ping-pong; the other end has the other value of `first`. Both know the result at
/// the end.
class LinkPing final : public LinkOperation {
 public:
  LinkPing(std::string name, const LinkEnd& end, bool first)
      : LinkOperation(std::move(name), end), first_(first) {}

  /// After Done() without failure: half of an 8-byte message's round trip, best quartile, in
  /// seconds.
  double Latency() const { return latency_; }

 private:
  void Begin() override;
  void Ping();
  void Pong();
  void OnPong();

  const bool first_;
  double greeting_ = 0, greeted_ = 0;
  double out_ = 0, in_ = 0;  // in the message: 0 = continue, else the result of the last one
  double latency_ = 0;
  double started_ = 0, sent_ = 0;  // seconds of the steady clock
  int pings_ = 0;
  std::vector<double> round_trips_;
};

}  // namespace adaptive_train
