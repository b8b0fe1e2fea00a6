// The ranks that share something, and how they talk: asynchronous sends, receives and collectives.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "runtime/comm/lane.h"
#include "runtime/comm/request.h"

namespace adaptive_train {

class Communicator;

/// How a group sums numbers, by their size. A value; the same on all members.
struct AllReduceWays {
  /// Up to so many bytes by recursive doubling. By default: on 16 ranks with links of 200 Mbit/s it
  /// takes about as long as a ring.
  std::int64_t doubling_bytes = 16384;
  std::int64_t halving_bytes = 0;  // others, up to so many, by recursive halving
  /// The members of each node, by number, two nodes or more of equally many: the rest inside nodes
  /// first. Empty: around one ring.
  std::vector<std::vector<int>> nodes = {};
};

/// One rank's end of a group. Members are numbered from 0 in the order that they were given in; all
/// `rank` and `member` parameters are such numbers. Every operation returns at once with a Request;
/// buffers are the caller's again when the Request says so. All members must call the collectives
/// of one purpose in the same order. A group of one rank is allowed. Threads: one thread calls (the
/// rank's main thread); the executor does the work. The object must outlive its Requests.
class Group {
 public:
  /// `members` are ranks of the job, this one among them, the same on all members. The communicator
  /// must outlive the group.
  Group(Communicator& communicator, GroupKind kind, std::vector<int> members);
  Group(const Group&) = delete;
  Group& operator=(const Group&) = delete;

  int Rank() const { return rank_; }  // this rank's number
  int Size() const { return static_cast<int>(members_.size()); }
  /// The ranks of the job, by number.
  const std::vector<int>& Members() const { return members_; }
  int RankOf(int member) const { return members_[static_cast<std::size_t>(member)]; }
  Communicator& communicator() const { return communicator_; }

  /// From here on; while no sum is under way.
  void SetWays(AllReduceWays ways) { ways_ = std::move(ways); }
  const AllReduceWays& Ways() const { return ways_; }

  Request Send(int member, Purpose purpose, std::span<const std::byte> data);
  Request Receive(int member, Purpose purpose, std::span<std::byte> data);

  /// data[i] becomes the sum of all members' data[i], by the way that AllReduceWays says. Every
  /// member gets the same bits, whatever its processor.
  Request AllReduce(Purpose purpose, std::span<float> data);
  Request AllReduce(Purpose purpose, std::span<double> data);
  /// Chunk r of every member becomes what member r has there. `chunks`, [members], may be of
  /// different lengths, or empty. Inside nodes first where AllReduceWays has nodes.
  Request AllGather(Purpose purpose, std::vector<std::span<std::byte>> chunks);
  /// Part r of member r becomes the sum of all members' parts r, added in their order; the other
  /// parts stay as they are. `parts`, [members], may be of different lengths, or empty.
  Request ReduceScatter(Purpose purpose, std::vector<std::span<float>> parts);

  /// The purpose's next collective, for an operation of another's making; it counts as one of the
  /// collectives that all members must call in the same order.
  CollectiveLane NextLane(Purpose purpose);
  /// Starts an operation of another's making, on the executor's thread. Its messages bear the tags
  /// of a lane that NextLane gave it, or tags from kForeignTags on.
  Request Launch(std::shared_ptr<Operation> operation);

 private:
  template <class T>
  Request StartAllReduce(Purpose purpose, std::span<T> data);
  std::uint64_t& Sequence(std::vector<std::uint64_t>& of, Purpose purpose, int member);

  Communicator& communicator_;
  const GroupKind kind_;
  const std::vector<int> members_;
  const int rank_;
  AllReduceWays ways_;
  std::array<std::uint64_t, kPurposes> collectives_{};  // started so far
  std::vector<std::uint64_t> sends_, receives_;         // per purpose and member, started so far
};

}  // namespace adaptive_train
