// One all-reduce around a ring, as the runtime plays it.
#pragma once

#include <cstddef>
#include <functional>
#include <span>
#include <vector>

#include "launcher/simulator/simulated_links.h"

namespace adaptive_train {

/// How many of the phases: a reduce-scatter, an all-gather, or one after the other.
enum class RingPart { kHalf, kAll };

/// In each of D-1 phases (twice that for both halves) every member sends one D-th of the bytes to
/// its right neighbour and takes as much from its left one; it begins a phase when both parts of
/// the one before are over (Patarasuk and Yuan 2009; runtime/comm/stepped_all_reduce.h). A message
/// begins when both its ends are there. One thread: the loop's; at its address from Ready to the
/// last Done.
class RingExchange {
 public:
  using Done = std::function<void(int member)>;

  /// With `coarse` all phases are one flow that begins when the last member is ready
  /// (SimulatedLinks::SendAround). `done` is called once for each member. The members stay where
  /// they are as long as this lives.
  RingExchange(SimulatedLinks& links, std::span<const Place> members, double bytes, RingPart part,
               bool coarse, Done done);

  /// The member joins now; each once.
  void Ready(int member);

 private:
  struct Member {
    int phase = -1;  // -1: not ready
    int parts = 0;   // of the phase, that are over
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
  std::vector<Member> members_;  // none if coarse
  const int phases_;
  const double chunk_;
  const bool coarse_;
  const Done done_;
  std::size_t ready_ = 0;
};

}  // namespace adaptive_train
