// The matrix that embedding and head share, where they are on different stages of a pipeline.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "kernels/buffer.h"
#include "kernels/host_copy.h"
#include "runtime/comm/groups.h"
#include "runtime/train/rank_state.h"
#include "runtime/train/step_measure.h"
#include "runtime/train/unit_gradients.h"

namespace adaptive_train {

/// The first stage has the matrix and its state. The last stage has a copy of the weights: what the
/// head adds to their gradient goes to the first stage once a step, and the new weights come back.
/// So the two cannot drift apart, and moments and checkpoints have the matrix once. On all other
/// ranks, and where nothing is shared, every call does nothing. Each replica does this for itself.
/// Throws FatalError. Not thread-safe.
template <class T>
class TiedEmbedding {
 public:
  /// `tied`: the model's embedding and head share their matrix. With `units` the copy's gradient is
  /// sent as the sums of the rank's nodes, and nothing is added to the first stage's own. What is
  /// passed by reference or pointer must outlive this. Throws kernels::AllocationFailure.
  TiedEmbedding(bool tied, Groups& groups, RankState<T>& state, StepMeasure& measure,
                UnitGradients<T>* units = nullptr);

  /// Whether this rank has the matrix or its copy.
  bool Active() const { return matrix_ != nullptr; }

  /// Before a step's gradients are cleared.
  void Begin();
  /// Gradients in [begin, end) of the arena have all that this stage adds to them in the step. The
  /// last stage sends the copy's; the first one waits for them and adds them to its own.
  void OnGradients(std::size_t begin, std::size_t end);
  /// With units, on the first stage: where the copy's sums are, one for each node. Otherwise empty.
  std::vector<float*> HeadsSums() const;
  /// The first stage's weights of the matrix are those of the next step, on both stages alike.
  void SendWeights();
  /// Until this rank's weights of the matrix are there and may be changed.
  void WaitForWeights();

  /// Elements of the arena that SendWeights reads end here.
  std::size_t End() const;

 private:
  static constexpr int kFirst = 0, kLast = 1;  // members of the group

  std::span<T> Weights();
  void MakeRoom(std::size_t size);
  void WaitForGradient();

  Group& group_;
  RankState<T>& state_;
  StepMeasure& measure_;
  const ParameterRange* matrix_ = nullptr;  // in this rank's layout
  bool has_copy_ = false;                   // this is the last stage
  const bool adds_;                         // the copy's gradient to the first stage's
  kernels::Buffer<float> received_;         // on the first stage: the copy's gradient
  /// What of the copy's gradient is sent, or where it is received: all, or the sums of each node.
  std::vector<std::span<float>> parts_;
  std::vector<kernels::HostCopy<float>> copies_;  // [parts]
  std::vector<Request> gradients_;                // [parts]
  kernels::HostCopy<T> weights_copy_;
  Request weights_;
  bool weights_come_ = false;  // and are not in the device's memory yet
};

}  // namespace adaptive_train
