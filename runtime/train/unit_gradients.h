// The gradients of a rank's units, in a run whose bits no layout changes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "core/plan.h"
#include "kernels/buffer.h"
#include "runtime/exchange/tree_exchange.h"
#include "runtime/exchange/unit_sums.h"
#include "runtime/train/rank_state.h"

namespace adaptive_train {

/// Each unit, a micro-batch of the global batch, adds its gradients to zeros. They are taken into
/// the sums of the tree (UnitSums) as soon as a pass has made all of them: the head's matrix with
/// the loss, the others with backward or with a half of it. Where embedding and head share a matrix
/// on this rank, each has a tree of its own, as on two ranks: the head's part is in the arena, the
/// embedding's beside it. Not thread-safe.
template <class T>
class UnitGradients {
 public:
  /// `tied`: the model's embedding and head share their matrix. `halves`: this rank's backwards come
  /// in halves. The state must outlive this. Throws kernels::AllocationFailure.
  UnitGradients(const Plan& plan, const RankPlan& own, bool tied, bool halves, RankState<T>& state);

  /// Where the embedding adds its part of a shared matrix; empty: in the arena.
  std::span<float> EmbeddingPart() { return embedding_.span(); }

  /// Before a step's first pass, with an arena of zeros.
  void Begin() { embedding_.Clear(); }

  // Passes of one of the rank's micro-batches, numbered from 0; each kind in ascending order.

  /// The loss has been made with its gradients.
  void AfterLoss(int micro_batch) { Take(Pass::kLoss, 0, arena_, micro_batch); }
  /// The first half of backward has made its part of [begin, end).
  void AfterInput(std::size_t begin, std::size_t end, int micro_batch) {
    Take(Pass::kInput, begin, end, micro_batch);
  }
  /// Backward, or its second half, has made its part of [begin, end).
  void AfterBackward(std::size_t begin, std::size_t end, int micro_batch) {
    Take(Pass::kBackward, begin, end, micro_batch);
  }

  /// After the last unit: this rank's sums of elements [begin, end) of the arena, one for each of
  /// its nodes. The same places in every step.
  std::vector<std::span<float>> Nodes(std::size_t begin, std::size_t end);
  /// What the exchange sums. `heads` are the head's sums of the matrix that it shares with this
  /// rank's embedding and that came from another stage: one for each node, or none.
  UnitTrees Trees(const std::vector<float*>& heads);

 private:
  enum class Pass : std::uint8_t { kLoss, kInput, kBackward };
  struct Part {
    std::size_t begin = 0, end = 0;
    Pass pass = Pass::kBackward;
  };

  Pass PassOf(const ParameterRange& range, bool halves) const;
  void Take(Pass pass, std::size_t begin, std::size_t end, int micro_batch);

  const std::size_t arena_;             // its elements
  const std::size_t trained_;           // of these, all but a copy of the shared matrix
  const ParameterRange* const matrix_;  // the token embedding's, or its copy; nullptr: not here
  const bool shared_;                   // with the head on this rank
  const bool copied_;                   // it is the copy
  const Pass embedding_pass_;           // that makes the embedding's gradients
  const UnitRange own_;
  const std::int64_t units_;
  std::vector<UnitRange> shares_;  // [replicas]
  std::vector<Part> parts_;        // of the arena, ascending
  UnitSums<T> sums_;
  kernels::Buffer<float> embedding_;
  std::optional<UnitSums<T>> embedding_sums_;
};

}  // namespace adaptive_train
