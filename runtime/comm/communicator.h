// How ranks talk: asynchronous sends, receives and sums over all ranks of the job.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "core/result.h"
#include "runtime/comm/request.h"

namespace adaptive_train {

/// Each purpose has its own tags, so that no message is taken for another, and its own byte count.
enum class Purpose : std::uint8_t { kGradient, kParameter, kActivation, kStatistic };
inline constexpr std::size_t kPurposes = 4;

/// Tags from here to twice this belong to no purpose and no lane: for operations between some ranks
/// only, which choose their tags by themselves.
inline constexpr std::uint64_t kForeignTags = std::uint64_t{1} << 62;

/// How numbers are summed over all ranks, by their size. A value; the same on all ranks.
struct AllReduceWays {
  /// Up to so many bytes by recursive doubling. By default: on 16 ranks with links of 200 Mbit/s it
  /// takes about as long as a ring.
  std::int64_t doubling_bytes = 16384;
  std::int64_t halving_bytes = 0;  // others, up to so many, by recursive halving
  /// The ranks of each node, two nodes or more of equally many: the rest inside nodes first. Empty:
  /// around one ring.
  std::vector<std::vector<int>> nodes = {};
};

/// One collective as an operation sees it: who takes part, and tags that no other one has.
struct CollectiveLane {
  UcxThread* thread = nullptr;
  int rank = 0;  // this rank's number among the members
  int size = 1;
  std::uint64_t tag = 0;                      // the low 16 bits are the operation's own
  std::atomic<std::int64_t>* sent = nullptr;  // payload bytes of the purpose, counted up
  std::uint64_t sequence = 0;                 // the purpose's collectives before this one
  const std::vector<int>* members = nullptr;  // their ranks; nullptr: all, in order

  int RankOf(std::size_t member) const {
    return members == nullptr ? static_cast<int>(member) : (*members)[member];
  }
  /// The same lane among some ranks only, this one among them. Lanes among disjoint ranks do not
  /// disturb each other. `ranks` must outlive the operation.
  CollectiveLane Among(const std::vector<int>& ranks) const;
};

/// One rank's end. Every operation returns at once with a Request; buffers are the caller's again
/// when the Request says so. All ranks must call the collectives of one purpose in the same order.
/// Threads: one thread calls (the rank's main thread); one thread of its own does the work and
/// sleeps when there is none. The object must outlive its Requests.
class Communicator {
 public:
  static Result<std::unique_ptr<Communicator>> Open(int rank, int size);
  ~Communicator();

  int Rank() const { return rank_; }
  int Size() const { return size_; }
  /// What the peers need to reach this rank: opaque bytes.
  const std::string& Address() const;
  /// Who may be reached where: index = rank, one for each rank. Once, before the first operation.
  void Connect(std::vector<std::string> addresses);

  /// From here on; while no sum is under way.
  void Follow(AllReduceWays ways) { ways_ = std::move(ways); }
  const AllReduceWays& Ways() const { return ways_; }

  Request Send(int peer, Purpose purpose, std::span<const std::byte> data);
  Request Receive(int peer, Purpose purpose, std::span<std::byte> data);

  /// data[i] becomes the sum of all ranks' data[i], by the way that AllReduceWays says. Every rank
  /// gets the same bits, whatever its processor.
  Request AllReduce(Purpose purpose, std::span<float> data);
  Request AllReduce(Purpose purpose, std::span<double> data);

  /// The purpose's next collective, for an operation of another's making; it counts as one of the
  /// collectives that all ranks must call in the same order.
  CollectiveLane NextLane(Purpose purpose);
  /// Starts an operation of another's making, on the thread that Thread() names. Its messages bear
  /// the tags of a lane that NextLane gave it, or tags from kForeignTags on.
  Request Launch(std::shared_ptr<Operation> operation);
  UcxThread* Thread() const { return thread_.get(); }

  /// Processor time of the communicator's own thread since it was opened. Any thread may ask.
  double ThreadCpuSeconds() const;
  /// Payload bytes this rank has handed to the transport for a purpose since the start.
  std::int64_t BytesSent(Purpose purpose) const {
    return sent_[static_cast<std::size_t>(purpose)].load();
  }

 private:
  Communicator(int rank, int size);

  template <class T>
  Request StartAllReduce(Purpose purpose, std::span<T> data);

  const int rank_;
  const int size_;
  AllReduceWays ways_;
  std::unique_ptr<UcxThread> thread_;
  std::atomic<std::int64_t> sent_[kPurposes] = {};
  std::uint64_t collectives_[kPurposes] = {};    // started so far
  std::vector<std::uint64_t> sends_, receives_;  // per purpose and peer, started so far
};

}  // namespace adaptive_train
