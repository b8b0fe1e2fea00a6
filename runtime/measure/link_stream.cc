#include "runtime/measure/link_stream.h"

#include <algorithm>
#include <bit>

#include "core/seconds.h"

namespace adaptive_train {
namespace {

constexpr int kWindow = 12;  // chunks under way
constexpr std::size_t kSmallestChunk = 8u << 10, kLargestChunk = 4u << 20;
/// The intended duration of a chunk: many arrivals in a short time, few wake-ups on a fast link.
constexpr double kChunkSeconds = 0.0015;
constexpr std::size_t kLeastArrivals = 13;
/// A link too slow for the limits above is judged by its arrivals in this time.
constexpr double kMostSeconds = 1.5;

// Kinds of messages.
constexpr std::uint64_t kChunk = 3, kGrant = 4;

}  // namespace

LinkStream::LinkStream(std::string name, const LinkEnd& end, bool sends, double latency,
                       const StreamJudgement& judgement)
    : LinkOperation(std::move(name), end),
      sends_(sends),
      latency_(latency),
      judgement_(judgement),
      next_look_(judgement.least_seconds),
      payload_(kLargestChunk, std::byte{0x5a}),
      chunk_(kSmallestChunk) {}

void LinkStream::Begin() {
  began_ = SteadySecondsNow();
  if (sends_) ReceiveGrant();
  for (int i = 0; i < kWindow; ++i) {
    if (sends_)
      SendChunk(kSmallestChunk);
    else
      ReceiveChunk(kSmallestChunk);
  }
}

// The sender: sends what is granted.

void LinkStream::SendChunk(std::size_t bytes) {
  bytes_ += static_cast<double>(bytes);
  SendKind(kChunk, payload_.data(), bytes, {});
}

void LinkStream::ReceiveGrant() {
  ReceiveKind(kGrant, &granted_, sizeof granted_, [this] {
    if (granted_ == 0) return;
    if (granted_ > kLargestChunk) return FailWithPeer("the peer granted a chunk that is too large");
    SendChunk(granted_);
    ReceiveGrant();
  });
}

// The receiver.

void LinkStream::ReceiveChunk(std::size_t bytes) {
  ReceiveKind(kChunk, payload_.data(), bytes, [this, bytes] { OnChunk(bytes); });
}

void LinkStream::Grant(std::size_t bytes) {
  grants_.push_back(bytes);
  SendKind(kGrant, &grants_.back(), sizeof grants_.back(), {});
}

void LinkStream::OnChunk(std::size_t bytes) {
  bytes_ += static_cast<double>(bytes);
  if (!enough_) {
    const Arrival now{SteadySecondsNow() - began_, bytes_};
    enough_ = Judge(now);
    if (enough_) {
      Grant(0);
    } else {
      ChooseSize(now);
      ReceiveChunk(chunk_);
      Grant(chunk_);
    }
  }
}

/// Keeps the arrival if it counts. Returns true when enough have been seen and judged.
bool LinkStream::Judge(const Arrival& now) {
  const bool late = now.seconds > kMostSeconds;
  const bool started = bytes_ > judgement_.passed_bytes && steady_ > 2 * kWindow;
  if (!arrivals_.empty() || started || late) arrivals_.push_back(now);
  if (late && arrivals_.size() < 2) {
    // Even the start has not passed, so all arrivals are used.
    arrivals_.insert(arrivals_.begin(), recent_.begin(), recent_.end());
    arrivals_.insert(arrivals_.begin(), Arrival{});
  }
  const double seen = arrivals_.empty() ? 0 : now.seconds - arrivals_.front().seconds;
  if (!late && (arrivals_.size() < kLeastArrivals || seen < next_look_)) return false;
  received_ = SlopeOf(arrivals_);
  next_look_ = seen + judgement_.least_seconds / 4;
  return late || received_.spread <= judgement_.spread || seen >= judgement_.most_seconds;
}

/// Powers of two, so that a varying rate does not change the size all the time.
void LinkStream::ChooseSize(const Arrival& now) {
  recent_.push_back(now);
  ++steady_;
  if (recent_.size() <= 2 * kWindow) return;
  const Arrival before = recent_.front();
  recent_.pop_front();
  const double rate = (now.bytes - before.bytes) / std::max(1e-9, now.seconds - before.seconds);
  const double wanted = rate * std::max(kChunkSeconds, 4 * latency_ / kWindow);
  const auto fitting = std::bit_floor(static_cast<std::size_t>(
      std::clamp(wanted, static_cast<double>(kSmallestChunk), static_cast<double>(kLargestChunk))));
  if (fitting > chunk_) {
    chunk_ *= 2;
    steady_ = 0;
  } else if (fitting < chunk_ / 2) {
    chunk_ /= 2;
  }
}

}  // namespace adaptive_train
