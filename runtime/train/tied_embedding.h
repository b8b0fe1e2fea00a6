// The matrix that embedding and head share, where they are on different stages of a pipeline.
#pragma once

#include <cstddef>
#include <span>

#include "kernels/buffer.h"
#include "runtime/comm/groups.h"
#include "runtime/train/rank_state.h"
#include "runtime/train/step_measure.h"

namespace adaptive_train {

/// The first stage has the matrix and its state. The last stage has a copy of the weights: what the
/// head adds to their gradient goes to the first stage once a step, and the new weights come back.
/// So the two cannot drift apart, and moments and checkpoints have the matrix once. On all other
/// ranks, and where nothing is shared, every call does nothing. Each replica does this for itself.
/// Throws FatalError. Not thread-safe.
template <class T>
class TiedEmbedding {
 public:
  /// `tied`: the model's embedding and head share their matrix. What is passed by reference must
  /// outlive this. Throws kernels::AllocationFailure.
  TiedEmbedding(bool tied, Groups& groups, RankState<T>& state, StepMeasure& measure);

  /// Whether this rank has the matrix or its copy.
  bool Active() const { return matrix_ != nullptr; }

  /// Before a step's gradients are cleared.
  void Begin();
  /// Gradients in [begin, end) of the arena have all that this stage adds to them in the step. The
  /// last stage sends the copy's; the first one waits for them and adds them to its own.
  void OnGradients(std::size_t begin, std::size_t end);
  /// The first stage's weights of the matrix are those of the next step, on both stages alike.
  void SendWeights();
  /// Until this rank's weights of the matrix are there and may be changed.
  void WaitForWeights();

  /// Elements of the arena that SendWeights reads end here.
  std::size_t End() const;

 private:
  static constexpr int kFirst = 0, kLast = 1;  // members of the group

  std::span<std::byte> Weights();

  Group& group_;
  RankState<T>& state_;
  StepMeasure& measure_;
  const ParameterRange* matrix_ = nullptr;  // in this rank's layout
  bool has_copy_ = false;                   // this is the last stage
  kernels::Buffer<float> received_;         // on the first stage: the copy's gradient
  Request gradient_, weights_;
};

}  // namespace adaptive_train
