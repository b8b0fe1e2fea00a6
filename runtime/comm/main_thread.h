// What a rank's main thread is at: for its other threads to see, and to call it out of a wait.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>

#include "core/rank_status.h"

namespace adaptive_train {

class Operation;

/// Kept up to date by the rank's main thread, which takes an uncontended lock for each change.
/// Threads: Status, GiveUp and GivenUp from any thread, all others from the main thread.
class MainThread {
 public:
  /// It works at this from now on: "computing".
  void WorksAt(std::string_view work);
  /// Optimizer step `step` begins.
  void BeginsStep(std::int64_t step);
  /// Micro-batch of the step, from 1.
  void TakesMicroBatch(std::int64_t number);
  /// It waits for `operation`, which it must stop waiting for; nullptr: it works again.
  void WaitsFor(std::shared_ptr<Operation> operation);

  /// All but the peers.
  RankStatus Status() const;

  /// It is to wait for nothing from now on. Gives the operation that it waits for at this moment;
  /// nullptr: none.
  std::shared_ptr<Operation> GiveUp();
  bool GivenUp() const;

 private:
  using Clock = std::chrono::steady_clock;

  mutable std::mutex mutex_;  // guards all below
  std::int64_t step_ = 0, micro_batch_ = 0;
  std::string work_ = "starting";
  std::shared_ptr<Operation> awaited_;
  Clock::time_point since_ = Clock::now();
  bool given_up_ = false;
};

}  // namespace adaptive_train
