// Simulates one all-reduce around a ring as the runtime performs it.
#pragma once

#include <cstddef>
#include <functional>
#include <span>
#include <vector>

#include "launcher/simulator/simulated_links.h"

namespace adaptive_train {

/// Which phases: a reduce-scatter or an all-gather (kHalf), or one after the other (kAll).
enum class RingPart { kHalf, kAll };

/// In each of D-1 phases (twice that for kAll) every member sends one D-th of the bytes to its
/// right neighbour and receives as much from its left one. It begins a phase when both transfers of
/// the previous one are complete (Patarasuk and Yuan 2009; runtime/comm/stepped_all_reduce.h). A
/// message begins when both ends are ready. One thread: the loop's. The object must not move
/// between Ready and the last Done.
class RingExchange {
 public:
  using Done = std::function<void(int member)>;

  /// With `coarse` all phases are one flow that begins when the last member is ready
  /// (SimulatedLinks::SendAround). Calls `done` once for each member. `members` must outlive this
  /// object.
  RingExchange(SimulatedLinks& links, std::span<const Place> members, double bytes, RingPart part,
               bool coarse, Done done);

  /// The member joins now; called once per member.
  void Ready(int member);

 private:
  struct Member {
    int phase = -1;  // -1: not ready
    int parts = 0;   // completed transfers of the phase
  };

  std::size_t Right(std::size_t member) const { return (member + 1) % members_.size(); }
  std::size_t Left(std::size_t member) const {
    return (member + members_.size() - 1) % members_.size();
  }
  void Enter(std::size_t member);
  void SendIfBothThere(std::size_t from);
  void PartOver(std::size_t member);

  SimulatedLinks& links_;
  const std::span<const Place> places_;
  std::vector<Member> members_;  // empty if coarse
  const int phases_;
  const double chunk_;
  const bool coarse_;
  const Done done_;
  std::size_t ready_ = 0;
};

}  // namespace adaptive_train
