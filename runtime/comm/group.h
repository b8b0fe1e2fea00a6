// A group of ranks that share something, with asynchronous sends, receives and collectives.
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

/// The all-reduce algorithm of a group by message size. A value; the same on all members.
struct AllReduceWays {
  /// Up to this many bytes use recursive doubling. At the default, on 16 ranks with links of 200
  /// Mbit/s, it takes about as long as a ring.
  std::int64_t doubling_bytes = 16384;
  std::int64_t halving_bytes = 0;  // larger ones, up to this many, use recursive halving
  /// The members of each node, for at least two nodes with equally many: all other sums start
  /// inside nodes. Empty: one ring.
  std::vector<std::vector<int>> nodes = {};
};

/// One rank's end of a group. Members are numbered from 0 in the given order; all `rank` and
/// `member` parameters are such numbers. Every operation returns a Request at once, and the Request
/// tells when the buffers are free again. All members must call the collectives of one purpose in
/// the same order. A group of one rank is allowed. Threads: only the rank's main thread calls; the
/// executor does the work. The object must outlive its Requests.
class Group {
 public:
  /// `members` are ranks of the job including this one, the same on all members. The communicator
  /// must outlive the group.
  Group(Communicator& communicator, GroupKind kind, std::vector<int> members);
  Group(const Group&) = delete;
  Group& operator=(const Group&) = delete;

  int Rank() const { return rank_; }  // this rank's number in the group
  int Size() const { return static_cast<int>(members_.size()); }
  /// The members' ranks in the job, by number.
  const std::vector<int>& Members() const { return members_; }
  int RankOf(int member) const { return members_[static_cast<std::size_t>(member)]; }
  Communicator& communicator() const { return communicator_; }

  /// Must not be called while a sum is under way.
  void SetWays(AllReduceWays ways) { ways_ = std::move(ways); }
  const AllReduceWays& Ways() const { return ways_; }

  Request Send(int member, Purpose purpose, std::span<const std::byte> data);
  Request Receive(int member, Purpose purpose, std::span<std::byte> data);

  /// data[i] becomes the sum of all members' data[i], by the algorithm of AllReduceWays. Every
  /// member gets the same bits, whatever its processor.
  Request AllReduce(Purpose purpose, std::span<float> data);
  Request AllReduce(Purpose purpose, std::span<double> data);
  /// Chunk r of every member becomes that of member r. `chunks`, [members], may differ in length or
  /// be empty. Goes inside nodes first if AllReduceWays has nodes.
  Request AllGather(Purpose purpose, std::vector<std::span<std::byte>> chunks);
  /// Part r of member r becomes the sum of all members' parts r, added in their order; its other
  /// parts do not change. `parts`, [members], may differ in length or be empty.
  Request ReduceScatter(Purpose purpose, std::vector<std::span<float>> parts);

  /// The lane of the purpose's next collective, for an operation defined elsewhere. It counts as
  /// one of the collectives that all members must call in the same order.
  CollectiveLane NextLane(Purpose purpose);
  /// Starts an operation defined elsewhere on the executor's thread. Its messages use the tags of a
  /// lane from NextLane, or tags from kForeignTags on.
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
