// Gradients in a device's memory that the host cannot touch are summed, selected and kept as those in
// the host's.
#include <gtest/gtest.h>

#include <limits>
#include <random>

#include "kernels/cpu/cpu_device.h"
#include "runtime/exchange/gradient_reducer.h"
#include "tests/fakes/guarded_device.h"
#include "tests/multi_process/forked_ranks.h"
#include "tests/multi_process/reducer_setting.h"

namespace adaptive_train::guarded_gradients_test {
namespace {

TEST(GradientReducer, SumsInMemoryThatTheHostCannotTouch) {
  Ranks ranks(3, [](Group& c) {
    kernels::cpu::CpuDevice<float> inner(1);
    kernels::GuardedDevice<float> device(inner);
    const ParameterLayout layout(kDims, StageSlice::Whole(kDims));
    const auto size = static_cast<std::size_t>(layout.size());
    kernels::Buffer<float> arena(device, size);
    GradientReducer<float> reducer(c, device, layout, arena.span(), {.bucket_elements = 100});
    for (int step = 1; step <= 3; ++step) {
      std::vector<float> gradients(size);
      for (std::size_t i = 0; i < size; ++i)
        gradients[i] = static_cast<float>(static_cast<int>(i % 97) + step * (c.Rank() + 1));
      arena.CopyFromHost(gradients);
      reducer.Add(size / 2, size);
      reducer.Add(0, size / 2);
      RANK_REQUIRE(reducer.Finish(In(std::chrono::seconds(60))));
      reducer.Settle(true);
      arena.CopyToHost(gradients);
      for (std::size_t i = 0; i < size; ++i)
        RANK_REQUIRE(gradients[i] == static_cast<float>(3 * static_cast<int>(i % 97) + 6 * step), i,
                     gradients[i]);
    }
    return true;
  });
  EXPECT_TRUE(ranks.AllGood());
}

/// A reducer and its arena, in the memory of either device.
struct Twin {
  Twin(Group& c, kernels::Device<float>& device, const ReducerOptions& options)
      : layout(kDims, StageSlice::Whole(kDims)),
        arena(device, static_cast<std::size_t>(layout.size())),
        reducer(c, device, layout, arena.span(), options),
        memory(device) {}

  /// What is in the arena after the step, and in the residuals, as bits.
  std::vector<std::uint32_t> Step(const ExchangePolicy& policy, std::span<const float> gradients,
                                  bool updated) {
    arena.CopyFromHost(gradients);
    reducer.SetPolicy(policy);
    reducer.Add(0, gradients.size());
    EXPECT_TRUE(reducer.Finish(In(std::chrono::seconds(60))));
    std::vector<std::uint32_t> bits(gradients.size() + reducer.Residuals().size());
    memory.CopyToHost(bits.data(), arena.data(), arena.bytes());
    reducer.Settle(updated);
    memory.CopyToHost(bits.data() + gradients.size(), reducer.Residuals().data(),
                      reducer.Residuals().size_bytes());
    return bits;
  }

  const ParameterLayout layout;
  kernels::Buffer<float> arena;
  GradientReducer<float> reducer;
  kernels::DeviceMemory& memory;
};

TEST(GradientReducer, TheSameBitsInMemoryThatTheHostCannotTouch) {
  Ranks ranks(3, [](Group& c) {
    for (const ReducerOptions& options :
         {ReducerOptions{.feedback = true, .bucket_elements = 3000},
          ReducerOptions{.feedback = true, .sharded = true, .bucket_elements = 3000},
          ReducerOptions{.sharded = true, .release = true, .bucket_elements = 3000}}) {
      kernels::cpu::CpuDevice<float> device(1);
      kernels::GuardedDevice<float> guarded(device);
      Twin open(c, device, options), closed(c, guarded, options);
      std::mt19937 random(static_cast<unsigned>(c.Rank() + 1));
      std::normal_distribution<float> normal;
      std::vector<float> gradients(open.arena.size());
      for (int step = 0; step < 10; ++step) {
        ExchangePolicy policy;
        if (options.feedback && step % 5 != 3)
          policy = Sparse(0.1, static_cast<ValueFormat>(step % 3));
        policy.sketch = step % 5 == 1 || step == 7;
        for (float& gradient : gradients) gradient = normal(random);
        if (step == 5 + c.Rank()) gradients[7] = std::numeric_limits<float>::infinity();
        const bool updated = step % 4 != 2;
        const auto bits = open.Step(policy, gradients, updated);
        RANK_REQUIRE(closed.Step(policy, gradients, updated) == bits, step, options.sharded);
      }
    }
    return true;
  });
  EXPECT_TRUE(ranks.AllGood());
}

}  // namespace
}  // namespace adaptive_train::guarded_gradients_test
