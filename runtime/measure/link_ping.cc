#include "runtime/measure/link_ping.h"

#include <cmath>

#include "core/seconds.h"
#include "runtime/measure/link_statistics.h"

namespace adaptive_train {
namespace {

constexpr std::uint64_t kPing = 1, kPong = 2, kGreeting = 7;
/// The first messages open the connection.
constexpr int kIgnored = 3;
constexpr int kLeast = 8, kMost = 40;
/// Links with long delays get fewer.
constexpr double kMostSeconds = 0.02;

}  // namespace

// Both ends open the connection before they measure. If the second end's first message were an
// answer, it would open its side while the first end's is still being accepted, and UCX 1.13 can
// crash there.
void LinkPing::Begin() {
  SendKind(kGreeting, &greeting_, sizeof greeting_, {});
  ReceiveKind(kGreeting, &greeted_, sizeof greeted_, [this] { first_ ? Ping() : Pong(); });
}

void LinkPing::Ping() {
  const int counted = static_cast<int>(round_trips_.size());
  const bool enough =
      counted >= kMost || (counted >= kLeast && SteadySecondsNow() - started_ > kMostSeconds);
  if (enough) {
    latency_ = BestQuartile(round_trips_) / 2;
  }
  out_ = latency_;
  sent_ = SteadySecondsNow();
  if (++pings_ == kIgnored) started_ = sent_;
  if (!enough) ReceiveKind(kPong, &in_, sizeof in_, [this] { OnPong(); });
  SendKind(kPing, &out_, sizeof out_, {});
}

void LinkPing::OnPong() {
  if (pings_ > kIgnored) round_trips_.push_back(SteadySecondsNow() - sent_);
  Ping();
}

void LinkPing::Pong() {
  ReceiveKind(kPing, &in_, sizeof in_, [this] {
    if (in_ != 0) {
      if (!std::isfinite(in_) || in_ < 0) return FailWithPeer("the peer sent no latency");
      latency_ = in_;
      return;
    }
    SendKind(kPong, &out_, sizeof out_, {});
    Pong();
  });
}

}  // namespace adaptive_train
