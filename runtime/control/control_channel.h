// A rank's end of the control channel: reports heartbeats and measurements to the launcher, and
// receives its orders.
#pragma once

#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "core/control_message.h"
#include "core/launch_settings.h"
#include "core/plan_shares.h"
#include "core/result.h"

namespace adaptive_train {

/// One TCP connection to the launcher and one thread that serves it. It sends a heartbeat each
/// kHeartbeatPeriod, even while the main thread computes. The thread ends the whole process at once
/// if the launcher closes the connection, says abort, or is silent for Deadlines().launcher_silence.
/// Whatever the rank was waiting for (a collective, a hung file system) will not come. Threads: all
/// members from any thread.
class ControlChannel {
 public:
  struct Settings {
    std::string addresses;  // "10.0.0.1:4711,[fd00::1]:4711", tried in this order
    std::string token;      // proved by both sides, never sent
    Hello hello;            // without nonce and proof
    /// What the process becomes when the launcher is lost: a program's path and arguments. Empty: it
    /// ends.
    std::vector<std::string> when_lost = {};
    std::vector<int> pass_on = {};  // signals that the launcher is told of; all threads block them
  };

  /// Connects to the first address where the other side proves to be the launcher, and proves that
  /// this is the rank. Each address gets a few seconds. Follows no orders before that.
  static Result<std::unique_ptr<ControlChannel>> Connect(Settings settings);
  /// Sends what is queued, and closes when the launcher has read it: blocks for 5 s at most.
  ~ControlChannel();

  /// What the launcher asks of the rank's other threads; called on the channel's thread.
  struct Orders {
    std::function<void()> say_status;
    std::function<void()> give_up;
  };
  /// Who obeys from now on; nobody (empty functions) at first. When this returns, the one before
  /// is called no more.
  void ObeyedBy(Orders orders);

  /// Queues a message; never blocks.
  void Send(ControlMessage message);

  /// Blocks until what was sent before has left this process, for `patience` at most.
  void Flush(std::chrono::milliseconds patience);

  /// The deadlines of this rank's waits, as set by the launcher.
  const LaunchDeadlines& Deadlines() const;
  /// Blocks until the launcher reports that all ranks are ready. False: not within
  /// Deadlines().hello.
  bool WaitForGo();
  /// Whether the launcher has asked to stop, and whether that is without another save.
  bool StopAsked() const;
  bool StopUnsavedAsked() const;
  /// Whether it has asked to end a round of local steps with the step under way.
  bool EndRoundAsked() const;
  /// The launcher has asked to give up the exchange under way. Blocks for `patience` at most, until
  /// it does.
  bool WaitForGiveUp(std::chrono::milliseconds patience);
  /// numbers[i] becomes the sum over all ranks, which the launcher makes. Blocks; false: it did not
  /// within `patience`. From one thread.
  bool SumByLauncher(std::span<double> numbers, std::chrono::milliseconds patience);
  /// The launcher has asked to save and go on, since the last call.
  bool TakeCheckpointAsked();
  /// Whether the launcher has asked to measure the layers, since the last call.
  bool TakeProfileAsked();
  /// The next shares that the launcher has asked for, if any. All ranks are asked for the same in the
  /// same order.
  std::optional<Shares> TakeNewShares();

 private:
  struct State;
  explicit ControlChannel(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace adaptive_train
