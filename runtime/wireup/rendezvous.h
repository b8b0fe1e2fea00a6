// How ranks find each other before they can communicate: PMIx put, fence, get. Init and fence have
// deadlines; put and get use local memory.
#pragma once

#include <chrono>
#include <string>
#include <vector>

#include "core/result.h"

namespace adaptive_train {

/// The PMIx client of this process. One per process, one thread. Works with Slurm's PMIx server and
/// with the launcher's. A call that misses its deadline leaves PMIx unusable: end the process,
/// since a hung fence cannot be repeated in its namespace.
class Rendezvous {
 public:
  /// Connects to the local PMIx server.
  static Result<Rendezvous> Join(std::chrono::milliseconds deadline);
  Rendezvous(Rendezvous&& other) noexcept;
  Rendezvous(const Rendezvous&) = delete;
  Rendezvous& operator=(const Rendezvous&) = delete;
  /// Leaves the namespace; waits for the local server for at most a second.
  ~Rendezvous();

  int Rank() const { return rank_; }
  int Size() const { return size_; }

  /// Publishes this rank's `value` (opaque bytes) and collects all ranks' values, index = rank.
  /// Blocks: one fence over all ranks within `fence_deadline`, then a get per rank from local
  /// memory.
  Result<std::vector<std::string>> Exchange(const std::string& value,
                                            std::chrono::milliseconds fence_deadline);

 private:
  Rendezvous(int rank, int size, std::string nspace)
      : rank_(rank), size_(size), nspace_(std::move(nspace)) {}

  int rank_;
  int size_;
  std::string nspace_;  // empty after a move
};

}  // namespace adaptive_train
