// Several micro-batches in flight through a stage, or through the chunks of a model, give the same
// bits as one after another.
#include <gtest/gtest.h>

#include <algorithm>
#include <tuple>
#include <vector>

#include "core/schedule/compute_order.h"
#include "kernels/cpu/cpu_device.h"
#include "tests/unit/runtime_model/small_model.h"

namespace adaptive_train::micro_batches_in_flight_test {
namespace {

constexpr int kMicroBatches = 5;

struct Outcome {
  std::vector<double> losses, gradients;
  bool operator==(const Outcome&) const = default;
};

/// A model cut into chunks that share the arenas of `whole`.
template <class T>
class Chunks {
 public:
  Chunks(const ModelDims& dims, const std::vector<StageSlice>& slices, const StageOptions& options,
         kernels::Device<T>& device)
      : options_(options),
        whole_(dims, StageSlice::Whole(dims), options, device),
        device_(device),
        layout_(dims, slices) {
    EXPECT_EQ(layout_.size(), whole_.layout.size());
    for (const StageSlice& slice : slices) {
      stages_.emplace_back(
          dims, slice, options, device,
          StageArenas<T>{layout_, whole_.parameters.span(), whole_.gradients.span()},
          whole_.workspace);
    }
  }

  Outcome Run(const std::vector<Action>& schedule, const TokenBatch& batch) {
    whole_.gradients.Clear();
    states_.clear();
    for (std::size_t chunk = 0; chunk < stages_.size(); ++chunk) {
      states_.emplace_back();
      for (int i = 0; i < MostInFlight(schedule, static_cast<int>(chunk)); ++i)
        states_.back().push_back(stages_[chunk].NewState());
    }
    Outcome outcome;
    for (const Action& action : schedule) {
      action.kind == ActionKind::kForward ? Forward(action, batch)
                                          : Backward(action, batch, outcome);
    }
    outcome.gradients = whole_.Gradients();
    return outcome;
  }

 private:
  MicroBatchState<T>& StateOf(int chunk, int number) {
    auto& states = states_[static_cast<std::size_t>(chunk)];
    return states[static_cast<std::size_t>(number) % states.size()];
  }
  void Forward(const Action& action, const TokenBatch& batch) {
    TransformerStage<T>& stage = stages_[static_cast<std::size_t>(action.stage)];
    const auto first = static_cast<std::uint32_t>(2 * action.micro_batch);
    const Pass pass{2, {7, first}, options_.dropout};
    MicroBatchState<T>& state = StateOf(action.stage, action.micro_batch);
    if (action.stage == 0) {
      stage.ForwardTokens(state, pass, batch.Part(first, 2).tokens);
    } else {
      stage.ForwardActivations(state, pass, StateOf(action.stage - 1, action.micro_batch).output());
    }
  }
  void Backward(const Action& action, const TokenBatch& batch, Outcome& outcome) {
    TransformerStage<T>& stage = stages_[static_cast<std::size_t>(action.stage)];
    MicroBatchState<T>& state = StateOf(action.stage, action.micro_batch);
    const bool head = stage.slice().has_head;
    if (head)
      outcome.losses.push_back(
          stage.HeadLoss(state, batch.Part(2 * action.micro_batch, 2).targets, 0.1));
    const T* d_input = stage.Backward(state, head ? nullptr : state.output());
    if (action.stage > 0)
      device_.CopyWithin(StateOf(action.stage - 1, action.micro_batch).output(), d_input,
                         stage.BoundaryBytes(state));
  }

  const StageOptions options_;
  SmallStage<T> whole_;
  kernels::Device<T>& device_;
  const ParameterLayout layout_;
  std::vector<TransformerStage<T>> stages_;
  std::vector<std::vector<MicroBatchState<T>>> states_;
};

/// Like the first of `stages` stages: that many micro-batches in flight.
std::vector<Action> Ahead(int stages) {
  return ComputeOrder(ScheduleKind::kOneForwardOneBackward, {stages, 1, kMicroBatches})
      .value()
      .ranks.front();
}

/// Every chunk forward for `group` micro-batches, then every chunk backward for them.
std::vector<Action> Interleaved(int chunks, int group) {
  std::vector<Action> schedule;
  for (int begin = 0; begin < kMicroBatches; begin += group) {
    const int end = std::min(kMicroBatches, begin + group);
    for (int chunk = 0; chunk < chunks; ++chunk)
      for (int i = begin; i < end; ++i) schedule.push_back({chunk, ActionKind::kForward, i});
    for (int chunk = chunks; chunk-- > 0;)
      for (int i = begin; i < end; ++i) schedule.push_back({chunk, ActionKind::kBackward, i});
  }
  return schedule;
}

using Case = std::tuple<ModelKind, Recompute, double>;

class MicroBatchesInFlight : public testing::TestWithParam<Case> {
 protected:
  template <class T>
  void ExpectTheBitsOfOneAfterAnother() {
    const auto [kind, recompute, dropout] = GetParam();
    for (const bool tied : {true, false}) {
      ModelDims dims = SmallDims(kind, tied);
      dims.layers = 4;
      const StageOptions options{
          .micro_batch = 2, .recompute = recompute, .dropout = dropout, .seed = 5};
      const TokenBatch batch = RandomBatch(dims, 2 * kMicroBatches);
      kernels::cpu::CpuDevice<T> device(1);
      Chunks<T> one(dims, {StageSlice::Whole(dims)}, options, device);
      const Outcome expected = one.Run(Ahead(1), batch);
      for (const int in_flight : {2, 3, 4}) EXPECT_EQ(expected, one.Run(Ahead(in_flight), batch));
      EXPECT_EQ(expected, one.Run(Interleaved(1, 3), batch));
      if (tied) continue;  // head and embedding add to one matrix in another order
      Chunks<T> two(dims, {{0, 2, true, false}, {2, 4, false, true}}, options, device),
          three(dims, {{0, 1, true, false}, {1, 3, false, false}, {3, 4, false, true}}, options,
                device);
      for (const int group : {1, 2, 4}) {
        EXPECT_EQ(expected, two.Run(Interleaved(2, group), batch)) << group;
        EXPECT_EQ(expected, three.Run(Interleaved(3, group), batch)) << group;
      }
    }
  }
};

TEST_P(MicroBatchesInFlight, GiveTheBitsOfOneAfterAnother) {
  ExpectTheBitsOfOneAfterAnother<float>();
  ExpectTheBitsOfOneAfterAnother<kernels::BFloat16>();
}

INSTANTIATE_TEST_SUITE_P(
    Kinds, MicroBatchesInFlight,
    testing::Combine(testing::Values(ModelKind::kGpt2, ModelKind::kLlama, ModelKind::kBert),
                     testing::Values(Recompute::kNone, Recompute::kSelective, Recompute::kFull),
                     testing::Values(0.0, 0.25)));

}  // namespace
}  // namespace adaptive_train::micro_batches_in_flight_test
