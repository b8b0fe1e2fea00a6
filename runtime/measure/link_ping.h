// The latency of a link: small messages back and forth.
#pragma once

#include <vector>

#include "runtime/measure/link_operation.h"

namespace adaptive_train {

/// One end of a ping-pong; the other one is made with the other value of `first`. Both know the
/// outcome at the end.
class LinkPing final : public LinkOperation {
 public:
  LinkPing(std::string name, const LinkEnd& end, bool first)
      : LinkOperation(std::move(name), end), first_(first) {}

  /// After Done() without failure: half a round trip of an 8-byte message, best quartile. Seconds.
  double Latency() const { return latency_; }

 private:
  void Begin() override;
  void Ping();
  void Pong();
  void OnPong();

  const bool first_;
  double greeting_ = 0, greeted_ = 0;
  double out_ = 0, in_ = 0;  // in the message: 0 = go on, else the outcome, and this is the last
  double latency_ = 0;
  double started_ = 0, sent_ = 0;  // seconds of the steady clock
  int pings_ = 0;
  std::vector<double> round_trips_;
};

}  // namespace adaptive_train
