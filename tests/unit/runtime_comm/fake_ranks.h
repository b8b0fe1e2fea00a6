// Ranks as threads of one process, each with an NCCL executor and the fake library.
#pragma once

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "runtime/comm/nccl_communicator.h"
#include "tests/fakes/nccl/fake_nccl.h"

namespace adaptive_train {

/// Longer than a slow machine takes for anything: whoever reaches it hangs.
constexpr std::chrono::seconds kForever{60};

inline Deadline Late() { return RunningClock::now() + kForever; }

/// A stream of the fake library; it must outlive the executor.
class FakeStream {
 public:
  FakeStream() : stream_{fake_nccl::NewStream(), {}} {
    stream_.mark = [handle = stream_.handle]() -> StreamPoint {
      return [handle, end = fake_nccl::Enqueued(handle)]() -> Result<bool> {
        return fake_nccl::Done(handle) >= end;
      };
    };
  }
  ~FakeStream() { fake_nccl::DeleteStream(stream_.handle); }
  FakeStream(const FakeStream&) = delete;
  FakeStream& operator=(const FakeStream&) = delete;

  const NcclStream& get() const { return stream_; }

 private:
  NcclStream stream_;
};

inline nccl::Library OpenFake() {
  auto library = nccl::Library::Open(FAKE_NCCL);
  if (!library) throw std::runtime_error(library.error().message);
  return *library;
}

inline std::vector<int> AllRanks(int size) {
  std::vector<int> ranks;
  for (int rank = 0; rank < size; ++rank) ranks.push_back(rank);
  return ranks;
}

/// A meeting of so many threads. A thread that ends before must arrive, too.
class Gate {
 public:
  explicit Gate(int size) : missing_(size) {}
  void Arrive() { --missing_; }
  void Wait() const {
    for (const Deadline limit = Late(); missing_ > 0;) {
      if (RunningClock::now() > limit) throw std::runtime_error("a rank hangs");
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
  }

 private:
  std::atomic<int> missing_;
};

constexpr std::chrono::milliseconds kShort{200};
constexpr NcclDeadlines kPatient{kForever, kForever};

/// Deadlines are short only where the script lets the rank wait for ever: a slow machine is no fault.
inline NcclDeadlines DeadlinesOf(const fake_nccl::Script& script, int rank) {
  NcclDeadlines deadlines = kPatient;
  for (const fake_nccl::Fault& fault : script.faults) {
    const bool at_start =
        fault.call == fake_nccl::Call::kInit || fault.call == fake_nccl::Call::kSplit;
    if (fault.kind == fake_nccl::Kind::kInProgress && at_start) deadlines.progress = kShort;
    if (fault.kind == fake_nccl::Kind::kNeverReturns && fault.rank == rank) deadlines.end = kShort;
  }
  return deadlines;
}

/// Makes the deadline of progress short when NCCL has taken the operations of all ranks whose own
/// call is not at fault, or when these have failed. Each rank of the gate calls it once.
inline void Shorten(NcclCommunicator& communicator, std::int64_t taken, bool at_fault, Gate& gate,
                    NcclDeadlines deadlines) {
  while (!at_fault && communicator.Report().taken < taken &&
         communicator.Report().fault == MemberFault::kNone)
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  gate.Arrive();
  gate.Wait();
  deadlines.progress = kShort;
  communicator.SetDeadlines(deadlines);
}

/// What a rank's thread has. Members are destroyed in the order that the communicator asks for.
struct FakeRank {
  FakeRank(int number, int size, NcclInvitation invited, NcclDeadlines deadlines)
      : rank(number),
        invitation(std::move(invited)),
        library(OpenFake()),
        world(library, executor, stream.get(), {"world", AllRanks(size), number}, deadlines) {}

  const int rank;
  const NcclInvitation invitation;
  const nccl::Library library;
  FakeStream stream;
  NcclExecutor executor;
  NcclCommunicator world;
};

/// Runs `body` as each of the ranks at once, with `script`.
inline void RunRanks(int size, const fake_nccl::Script& script,
                     const std::function<void(FakeRank&)>& body) {
  const NcclInvitation invitation = Invite(OpenFake()).value();
  fake_nccl::Play(invitation.id, script);
  std::vector<std::thread> threads;
  for (int rank = 0; rank < size; ++rank)
    threads.emplace_back([&, rank] {
      FakeRank own(rank, size, invitation, DeadlinesOf(script, rank));
      body(own);
    });
  for (std::thread& thread : threads) thread.join();
}

/// "" or the error in words.
inline std::string Words(const tl::expected<void, CommError>& outcome) {
  return outcome ? "" : outcome.error().operation + ": " + outcome.error().cause;
}

}  // namespace adaptive_train
