// A communicator of NCCL from joining to its end, as the executor's thread drives it.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "runtime/comm/nccl_communicator.h"

namespace adaptive_train {

/// One call of NCCL, and what must have happened for it to be over.
class NcclOperation final : public Operation, public std::enable_shared_from_this<NcclOperation> {
 public:
  enum class Kind { kJoin, kSplit, kCollective, kTransfers, kFinish };

  /// `peers`: ranks of the job, of kTransfers.
  NcclOperation(std::string name, Kind kind, std::vector<int> peers,
                std::shared_ptr<NcclMember> member, std::function<nccl::ncclResult_t()> call)
      : Operation(std::move(name)),
        kind_(kind),
        peers_(std::move(peers)),
        member_(std::move(member)),
        call_(std::move(call)) {}

  void Start() override;
  void Cancel(const std::string& cause) override;

  Kind kind() const { return kind_; }
  const std::vector<int>& peers() const { return peers_; }
  nccl::ncclResult_t Call() const { return call_(); }
  /// Its work is in the stream, up to there.
  void SetPoint(StreamPoint point) { point_ = std::move(point); }
  Result<bool> Reached() const { return point_(); }
  /// With an error, or none. An operation that was abandoned stays so.
  void End(std::optional<CommError> failure) {
    if (!Done()) Complete(std::move(failure));
  }

 private:
  const Kind kind_;
  const std::vector<int> peers_;
  const std::shared_ptr<NcclMember> member_;
  const std::function<nccl::ncclResult_t()> call_;
  StreamPoint point_;
};

/// A non-blocking communicator. NCCL takes one call at a time: the next follows when the last is no
/// longer in progress; the work that it has put into the stream then ends by itself. All on the
/// executor's thread but what says otherwise.
class NcclMember : public std::enable_shared_from_this<NcclMember> {
 public:
  using Pointer = std::shared_ptr<NcclOperation>;

  NcclMember(const nccl::Library& library, NcclExecutor& executor, NcclStream stream,
             NcclPlace place, NcclDeadlines deadlines);

  const nccl::Library& library() const { return library_; }
  const NcclPlace& place() const { return place_; }
  nccl::cudaStream_t stream() const { return stream_.handle; }
  /// nullptr: not in one yet.
  nccl::ncclComm_t comm() const { return comm_; }

  void Enter(Pointer operation);
  /// It is in this communicator from now on.
  void Adopt(nccl::ncclComm_t comm);
  /// Aborts the communicator. The first cause counts.
  void Fail(MemberFault fault, const std::string& cause);
  /// A split begins, of which `child` (or nullptr) gets the communicator that NCCL writes to the
  /// result. It fails with this one.
  nccl::ncclComm_t* SplitsInto(std::shared_ptr<NcclMember> child);

  // From any thread.
  void SetDeadlines(NcclDeadlines deadlines);
  MemberReport Report() const;
  /// Blocks until nothing is under way: once it has failed, for deadlines.end at most.
  void WaitUntilOver() const;

 private:
  enum class Phase { kOpen, kEnding, kOver };
  using Clock = RunningClock;

  bool Poll();
  void Advance();
  bool MayCall() const;
  void CallNext();
  void KeepPolling();
  void Taken();
  void EndReached();
  void CheckDeadline();
  void BeginEnd(std::function<void()> in_thread);
  void PollEnd();
  void Over(const std::string& addition);
  bool Idle() const { return !calling_ && running_.empty() && entered_.empty(); }
  std::string WhyOver() const;
  std::string ErrorText(nccl::ncclResult_t error) const;
  void FailBy(nccl::ncclResult_t error);

  const nccl::Library library_;
  NcclExecutor& executor_;
  const NcclStream stream_;
  const NcclPlace place_;

  Phase phase_ = Phase::kOpen;
  nccl::ncclComm_t comm_ = nullptr;
  struct {
    std::shared_ptr<NcclMember> child;
    std::shared_ptr<nccl::ncclComm_t> made;  // NCCL writes to it, perhaps after it was given up
  } split_;                                  // under way
  std::deque<Pointer> entered_;              // not called yet
  Pointer calling_;                          // NCCL has not taken it yet
  std::deque<Pointer> running_;              // in the stream
  bool polled_ = false;
  Clock::time_point progress_, ending_since_;
  std::shared_ptr<std::atomic<bool>> returned_;  // from the call that ends the communicator
  const char* ending_ = "";                      // its name

  mutable std::mutex mutex_;  // guards all below
  mutable std::condition_variable changed_;
  NcclDeadlines deadlines_;
  MemberReport report_;
  bool over_ = true;  // nothing under way
};

}  // namespace adaptive_train
