// How long a small GPT's training step takes on the processor, against the time of its products
// alone.
//
// The floor is the step's model FLOPs at the speed this device reaches on a large matrix product.
// Counters: floor_ms, of_floor (floor / step, 1 is best), tokens_per_s.
#include <benchmark/benchmark.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <vector>

#include "core/counter_random.h"
#include "kernels/cpu/cpu_device.h"
#include "runtime/model/gpt.h"
#include "runtime/train/adamw_groups.h"

namespace adaptive_train {
namespace {

double Seconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

/// FLOP/s of the best of several products of 1024^3.
double ProductPeak(kernels::cpu::CpuDevice& device) {
  constexpr std::int64_t kSize = 1024;
  const std::vector<float> a(kSize * kSize, 0.5F), b(kSize * kSize, 0.25F);
  std::vector<float> c(kSize * kSize);
  double best = 1e9;
  for (int repetition = 0; repetition < 10; ++repetition) {
    const double start = Seconds();
    device.Matmul({.rows = kSize,
                   .columns = kSize,
                   .inner = kSize,
                   .a = a.data(),
                   .b = b.data(),
                   .c = c.data()});
    best = std::min(best, Seconds() - start);
  }
  return 2.0 * kSize * kSize * kSize / best;
}

/// Arguments: threads, layers, heads, hidden, sequence, samples.
void ModelStep(benchmark::State& state) {
  const ModelDims dims{.layers = state.range(1),
                       .heads = state.range(2),
                       .hidden = state.range(3),
                       .sequence = state.range(4),
                       .vocab = 256};
  const std::int64_t samples = state.range(5);
  kernels::cpu::CpuDevice device(static_cast<int>(state.range(0)));
  const ParameterLayout layout(dims, StageSlice::Whole(dims));
  std::vector<float> parameters(static_cast<std::size_t>(layout.size()));
  std::vector<float> gradients(parameters.size()), first(parameters.size()),
      second(parameters.size());
  InitializeParameters(layout, 1, std::span(parameters));
  GptStage<float> stage(dims, StageSlice::Whole(dims), samples, device, parameters, gradients);
  const CounterRandom random(1, RandomPurpose::kSampleOrder);
  std::vector<std::int32_t> tokens(static_cast<std::size_t>(samples * dims.sequence));
  for (std::size_t i = 0; i < tokens.size(); ++i)
    tokens[i] = static_cast<std::int32_t>(random.Bits({.element = i}) % 256);

  const double count = static_cast<double>(tokens.size());
  std::int64_t step = 0;
  const double start = Seconds();
  for (auto _ : state) {
    device.Clear(gradients.data(), gradients.size() * sizeof(float));
    benchmark::DoNotOptimize(stage.ForwardBackward(tokens, tokens, samples, 1 / count));
    benchmark::DoNotOptimize(device.SquaredNorm(layout.size(), gradients.data()));
    AdamWStep<float>(device, layout, {.weight_decay = 0.1}, {parameters, gradients, first, second},
                     0, layout.size(), ++step, 1e-4, 1);
  }
  const double step_seconds = (Seconds() - start) / static_cast<double>(step);
  const double floor = ModelShape::Of(dims).TrainFlopsPerToken() * count / ProductPeak(device);
  state.counters["floor_ms"] = floor * 1e3;
  state.counters["of_floor"] = floor / step_seconds;
  state.counters["tokens_per_s"] = count / step_seconds;
}

BENCHMARK(ModelStep)
    ->ArgNames({"threads", "layers", "heads", "hidden", "sequence", "samples"})
    ->Args({1, 4, 4, 128, 128, 8})
    ->Args({2, 4, 4, 128, 128, 8})
    ->Args({1, 6, 6, 384, 256, 4})
    ->Args({2, 6, 6, 384, 256, 4})
    ->Unit(benchmark::kMillisecond)
    ->UseRealTime();

}  // namespace
}  // namespace adaptive_train

BENCHMARK_MAIN();
