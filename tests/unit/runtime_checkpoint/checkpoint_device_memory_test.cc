// Checkpoints of arenas that the host cannot touch, as those of a GPU.
#include <gtest/gtest.h>

#include "kernels/cpu/cpu_device.h"
#include "runtime/checkpoint/checkpoint_reader.h"
#include "tests/fakes/guarded_device.h"
#include "tests/unit/runtime_checkpoint/saved_state.h"

namespace adaptive_train::checkpoint_device_memory_test {
namespace {

/// The arenas of a state in a device's memory.
class DeviceState {
 public:
  DeviceState(kernels::DeviceMemory& memory, const SavedState& state) : memory_(memory) {
    for (const std::vector<float>& arena : state.arenas)
      arenas_.emplace_back(memory, arena.size()).CopyFromHost(arena);
  }
  TrainingArenas Spans() {
    return {&memory_,
            {arenas_[0].span(), arenas_[1].span(), arenas_[2].span(), arenas_[kResiduals].span()}};
  }
  ConstTrainingArenas ConstSpans() const {
    return {&memory_,
            {arenas_[0].span(), arenas_[1].span(), arenas_[2].span(), arenas_[kResiduals].span()}};
  }
  std::vector<float> OnHost(std::size_t arena) const {
    std::vector<float> values(arenas_[arena].size());
    arenas_[arena].CopyToHost(values);
    return values;
  }

 private:
  kernels::DeviceMemory& memory_;
  std::vector<kernels::Buffer<float>> arenas_;
};

class CheckpointDeviceMemory : public CheckpointTest {
 protected:
  /// With the same residual everywhere.
  SavedState StateOf(std::int64_t step, float residual) const {
    SavedState state(layout_, step);
    state.arenas[kResiduals].assign(static_cast<std::size_t>(layout_.size()), residual);
    return state;
  }

  const ParameterLayout layout_ = WholeLayout(kLargeDims);
  kernels::cpu::CpuDevice<float> cpu_{1};
  kernels::GuardedDevice<float> device_{cpu_};
};

TEST_F(CheckpointDeviceMemory, GoToFilesAndBack) {
  SavingRanks ranks;
  const CheckpointArena arena{BlocksOf(layout_), BucketRule::Whole(layout_.size(), 2)};
  for (std::int64_t rank = 0; rank < 2; ++rank)
    ranks.Add(path_, kLargeDims, {.ranks = 2}, arena, {0, rank}, true);
  for (std::size_t rank = 0; rank < 2; ++rank) {
    const DeviceState state(device_, StateOf(3, rank == 0 ? 0.5F : 1.25F));
    ASSERT_TRUE(ranks.writers[rank]->Begin(StepOf(3), state.ConstSpans()));
  }
  ASSERT_EQ(ranks.Finish(), "saved");

  DeviceState read(device_, StateOf(4, 9.0F));
  auto reader = CheckpointFolder(path_).Open(3, OwnerOf(kLargeDims));
  ASSERT_TRUE(reader) << reader.error().message;
  const auto done = reader->Read(ReadingRank::OfAll(layout_), read.Spans());
  ASSERT_TRUE(done) << done.error().message;
  const SavedState expected = StateOf(3, 1.75F);  // one rank gets both ranks' residuals
  for (std::size_t of = 0; of < kTrainingArenas; ++of)
    EXPECT_EQ(read.OnHost(of), expected.arenas[of]) << kTrainingArenaNames[of];
}

TEST_F(CheckpointDeviceMemory, ResidualsThatAreAllZeroAreLeftOut) {
  const CheckpointArena arena{BlocksOf(layout_), BucketRule::Whole(layout_.size(), 1)};
  SavingRanks ranks;
  ranks.Add(path_, kLargeDims, {}, arena, {}, true);
  const DeviceState state(device_, StateOf(1, 0.0F));
  ASSERT_TRUE(ranks.writers[0]->Begin(StepOf(1), state.ConstSpans()));
  ASSERT_EQ(ranks.Finish(), "saved");
  const auto reader = CheckpointFolder(path_).Open(1, OwnerOf(kLargeDims));
  ASSERT_TRUE(reader) << reader.error().message;
  EXPECT_EQ(reader->ResidualElements(), 0);
}

}  // namespace
}  // namespace adaptive_train::checkpoint_device_memory_test
