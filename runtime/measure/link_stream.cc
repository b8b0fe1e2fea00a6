#include "runtime/measure/link_stream.h"

#include <algorithm>
#include <bit>

#include "core/seconds.h"

namespace adaptive_train {
namespace {

constexpr int kWindow = 12;  // chunks under way
constexpr std::size_t kSmallestChunk = 8u << 10, kLargestChunk = 4u << 20;
/// A chunk should take this long: enough arrivals in a short time, few wake-ups on a fast link.
constexpr double kChunkSeconds = 0.0015;
constexpr double kPassedBytes = 512 << 10;
constexpr std::size_t kLeastArrivals = 13;
/// A link too slow for what is above is judged by what it did in this time.
constexpr double kMostSeconds = 1.5;

// Kinds of messages: each way of each end has its own.
std::uint64_t ChunkKind(bool from_first) { return from_first ? 3 : 4; }
std::uint64_t GrantKind(bool from_first) { return from_first ? 5 : 6; }

}  // namespace

LinkStream::LinkStream(std::string name, const LinkEnd& end, bool first, StreamWays ways,
                       double latency, double seconds)
    : LinkOperation(std::move(name), end),
      first_(first),
      ways_(ways),
      latency_(latency),
      seconds_(seconds),
      chunk_(kSmallestChunk) {
  if (ways.send) outgoing_.resize(kLargestChunk, std::byte{0x5a});
  if (ways.receive) incoming_.resize(kLargestChunk);
}

void LinkStream::Start() {
  sides_left_ = (ways_.send ? 1 : 0) + (ways_.receive ? 1 : 0);
  began_ = SteadySecondsNow();
  if (ways_.receive) {
    for (int i = 0; i < kWindow; ++i) ReceiveChunk(kSmallestChunk);
  }
  if (ways_.send) {
    ReceiveGrant();
    for (int i = 0; i < kWindow; ++i) SendChunk(kSmallestChunk);
  }
}

void LinkStream::SideOver() {
  if (--sides_left_ == 0) Finish();
}

// The sender: does what it is granted.

void LinkStream::SendChunk(std::size_t bytes) {
  Send(ChunkKind(first_), outgoing_.data(), bytes, [] {});
}

void LinkStream::ReceiveGrant() {
  Receive(GrantKind(!first_), &granted_, sizeof granted_, [this] {
    if (granted_ == 0) return SideOver();
    if (granted_ > kLargestChunk) return FailWith("the peer granted a chunk that is too large");
    SendChunk(granted_);
    ReceiveGrant();
  });
}

// The receiver.

void LinkStream::ReceiveChunk(std::size_t bytes) {
  ++chunks_left_;
  Receive(ChunkKind(!first_), incoming_.data(), bytes, [this, bytes] { OnChunk(bytes); });
}

void LinkStream::Grant(std::size_t bytes) {
  grants_.push_back(bytes);
  Send(GrantKind(first_), &grants_.back(), sizeof grants_.back(), [] {});
}

void LinkStream::OnChunk(std::size_t bytes) {
  --chunks_left_;
  bytes_ += static_cast<double>(bytes);
  if (!enough_) {
    const Arrival now{SteadySecondsNow() - began_, bytes_};
    enough_ = Judge(now);
    if (enough_) {
      received_ = SlopeOf(arrivals_);
      Grant(0);
    } else {
      ChooseSize(now);
      ReceiveChunk(chunk_);
      Grant(chunk_);
    }
  }
  if (enough_ && chunks_left_ == 0) SideOver();
}

/// Keeps the arrival if it counts; true when enough have been seen.
bool LinkStream::Judge(const Arrival& now) {
  const bool late = now.seconds > kMostSeconds;
  const bool started = bytes_ > kPassedBytes && steady_ > 2 * kWindow;
  if (!arrivals_.empty() || started || late) arrivals_.push_back(now);
  if (late && arrivals_.size() < 2) {
    // Not even the start has passed: the whole of it must do.
    arrivals_.insert(arrivals_.begin(), recent_.begin(), recent_.end());
    arrivals_.insert(arrivals_.begin(), Arrival{});
    return true;
  }
  return late || (arrivals_.size() >= kLeastArrivals &&
                  now.seconds - arrivals_.front().seconds >= seconds_);
}

/// Powers of two, so that a rate that wavers does not change them all the time.
void LinkStream::ChooseSize(const Arrival& now) {
  recent_.push_back(now);
  ++steady_;
  if (recent_.size() <= 2 * kWindow) return;
  const Arrival before = recent_.front();
  recent_.pop_front();
  const double rate = (now.bytes - before.bytes) / std::max(1e-9, now.seconds - before.seconds);
  const double wanted = rate * std::max(kChunkSeconds, 4 * latency_ / kWindow);
  auto fitting = std::bit_floor(static_cast<std::size_t>(
      std::clamp(wanted, static_cast<double>(kSmallestChunk), static_cast<double>(kLargestChunk))));
  // Both directions at once: grants wait behind the data of the other direction. With half its
  // chunks, half its rate would be all there ever is.
  if (ways_.send && granted_ == 2 * fitting) fitting *= 2;
  if (fitting > chunk_) {
    chunk_ *= 2;
    steady_ = 0;
  } else if (fitting < chunk_ / 2) {
    chunk_ /= 2;
  }
}

}  // namespace adaptive_train
