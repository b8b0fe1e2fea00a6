// What a whole training step of GPT-2 takes on the processor, against its floor, measured in the
// same run.
//
// usage: step_bench [LAYERS HEADS HIDDEN SEQUENCE VOCAB BATCH THREADS STEPS PRECISION], by default
//        step_bench 6 6 384 256 8192 4 1 20 fp32; PRECISION is fp32 or bf16
//
// The floor is what nobody gets below with the same products and the same memory, always in fp32:
// - every product of the step by bare oneDNN, one call each on one thread, over THREADS;
//   attention's counted by half, as far as the causal mask lets them be
// - the bytes that AdamW, the norm of the gradients and clearing them move, and that norms,
//   residual sums and activation functions read and write, at the speed of a large plain copy
//
// A step is: clear gradients, forward, backward, norm, AdamW. Prints a table, and a line of JSON
// for scripts; step_cpu_ms, the processor time of all threads, is what others on the machine disturb
// least.
#include <fmt/format.h>
#include <omp.h>
#include <oneapi/dnnl/dnnl.h>
#include <time.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <span>
#include <string>
#include <vector>

#include "core/counter_random.h"
#include "kernels/cpu/cpu_device.h"
#include "runtime/model/transformer_stage.h"
#include "runtime/train/adamw_groups.h"
#include "runtime/train/rank_state.h"

namespace adaptive_train {
namespace {

double Seconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

/// Of the whole process.
double CpuSeconds() {
  timespec time{};
  ::clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

/// The shortest of some repetitions.
template <class Work>
double Best(int repetitions, const Work& work) {
  double best = 1e9;
  for (int i = 0; i < repetitions; ++i) {
    const double start = Seconds();
    work();
    best = std::min(best, Seconds() - start);
  }
  return best;
}

struct Product {
  const char* name;
  std::int64_t rows, columns, inner;
  bool transpose_a, transpose_b;
  double times;  // per step
};

std::vector<Product> ProductsOf(const ModelDims& d, std::int64_t batch) {
  const std::int64_t rows = batch * d.sequence;
  const double layers = static_cast<double>(d.layers);
  std::vector<Product> all;
  const auto linear = [&](const char* name, std::int64_t in, std::int64_t out, double times) {
    all.push_back({name, rows, out, in, false, false, times});
    all.push_back({name, rows, in, out, false, true, times});
    all.push_back({name, in, out, rows, true, false, times});
  };
  linear("c_attn", d.hidden, d.QkvColumns(), layers);
  linear("attn.c_proj", d.hidden, d.hidden, layers);
  linear("c_fc", d.hidden, d.Ffn(), layers);
  linear("mlp.c_proj", d.Ffn(), d.hidden, layers);
  linear("head", d.hidden, d.vocab, 1);
  // Forward: scores and values. Backward: scores again, and the gradients of probabilities, values,
  // queries, keys.
  const double heads = layers * static_cast<double>(batch * d.heads) / 2;
  all.push_back(
      {"attention, of keys", d.sequence, d.sequence, d.HeadSize(), false, true, 3 * heads});
  all.push_back(
      {"attention, of values", d.sequence, d.HeadSize(), d.sequence, false, false, 4 * heads});
  return all;
}

double ProductSeconds(const Product& p) {
  const auto size = [](std::int64_t a, std::int64_t b) { return static_cast<std::size_t>(a * b); };
  const std::vector<float> a(size(p.rows, p.inner), 0.5F), b(size(p.inner, p.columns), 0.25F);
  std::vector<float> c(size(p.rows, p.columns));
  return Best(8, [&] {
    dnnl_sgemm(p.transpose_a ? 'T' : 'N', p.transpose_b ? 'T' : 'N', p.rows, p.columns, p.inner, 1,
               a.data(), p.transpose_a ? p.rows : p.inner, b.data(),
               p.transpose_b ? p.inner : p.columns, 0, c.data(), p.columns);
  });
}

/// Bytes read and written per second by a copy much larger than the caches.
double CopyBandwidth() {
  constexpr std::size_t kBytes = std::size_t{256} << 20;
  std::vector<char> from(kBytes, 1), to(kBytes, 2);
  return 2.0 * kBytes / Best(5, [&] { std::memcpy(to.data(), from.data(), kBytes); });
}

/// Bytes that the step moves besides its products' operands.
double BytesOf(const ModelDims& d, std::int64_t batch, std::int64_t parameters) {
  const double rows = static_cast<double>(batch * d.sequence),
               hidden = static_cast<double>(d.hidden), ffn = static_cast<double>(d.Ffn());
  // Two norms: input and output forward; gradient, input, and the residual's gradient read and
  // written backward. Two residuals read. The activation: written forward; its input read backward.
  const double block = rows * (2 * 2 * hidden + 2 * 4 * hidden + 2 * hidden + 2 * ffn);
  const double ends =
      rows * (2 * hidden + 2 * hidden + 2 * hidden + 4 * hidden);  // embedding and back, final norm
  const double floats = static_cast<double>(d.layers) * block + ends;
  return 4 * floats + static_cast<double>(parameters) * (28 + 4 + 4);
}

struct Floor {
  double products = 0, bytes = 0;
  double Seconds() const { return products + bytes; }
};

Floor MeasureFloor(const ModelDims& dims, std::int64_t batch, std::int64_t parameters,
                   int threads) {
  Floor floor;
  for (const Product& p : ProductsOf(dims, batch)) {
    const double seconds = ProductSeconds(p);
    fmt::print(
        "  {:<22} {:>6} x {:>6} x {:>6}  {:6.1f} GFLOP/s\n", p.name, p.rows, p.columns, p.inner,
        2e-9 * static_cast<double>(p.rows * p.columns) * static_cast<double>(p.inner) / seconds);
    floor.products += p.times * seconds / threads;
  }
  const double bandwidth = CopyBandwidth();
  floor.bytes = BytesOf(dims, batch, parameters) / bandwidth;
  fmt::print("  copy {:.1f} GB/s\n", 1e-9 * bandwidth);
  return floor;
}

double Median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

/// [steps but for the first two]
struct StepTimes {
  std::vector<double> seconds, cpu_seconds;
};

template <class T>
StepTimes TimeSteps(const ModelDims& dims, std::int64_t batch, int threads, int steps) {
  kernels::cpu::CpuDevice<T> device(threads);
  const ParameterLayout layout(dims, StageSlice::Whole(dims));
  RankState<T> rank(device, layout, {});
  const ElementRange all{0, layout.size()};
  rank.Initialize(1, {all});
  if constexpr (!RankState<T>::kOwnWeights)
    device.Round({.count = layout.size(),
                  .parameters = rank.parameters.data(),
                  .weights = rank.rounded.data()});
  const StageOptions options{.micro_batch = batch};
  StageWorkspace<T> workspace(dims, true, options, device);
  TransformerStage<T> stage(dims, StageSlice::Whole(dims), options, device,
                            {layout, rank.Weights(), rank.gradients.span()}, workspace);
  MicroBatchState<T> state = stage.NewState();
  const CounterRandom random(1, RandomPurpose::kSampleOrder);
  std::vector<std::int32_t> tokens(static_cast<std::size_t>(batch * dims.sequence));
  for (std::size_t i = 0; i < tokens.size(); ++i)
    tokens[i] = static_cast<std::int32_t>(random.Bits({.element = i}) %
                                          static_cast<std::uint32_t>(dims.vocab));
  StepTimes times;
  for (int step = 1; step <= steps; ++step) {
    const double start = Seconds(), cpu_start = CpuSeconds();
    rank.ClearGradients();
    stage.ForwardBackward(state, {tokens, tokens, batch, {}},
                          1.0 / static_cast<double>(tokens.size()));
    const double norm = device.SquaredNorm(layout.size(), rank.gradients.data());
    AdamWStep<T>(device, layout, {.weight_decay = 0.1}, rank.OfUpdate(), 0, layout.size(), step,
                 1e-4, norm > 1 ? 0.5 : 1.0);
    if (step <= 2) continue;
    times.seconds.push_back(Seconds() - start);
    times.cpu_seconds.push_back(CpuSeconds() - cpu_start);
  }
  return times;
}

void PrintResult(const Floor& floor, const StepTimes& steps, double tokens,
                 const std::string& precision) {
  const double step = Median(steps.seconds);
  const double best = *std::min_element(steps.seconds.begin(), steps.seconds.end());
  fmt::print(
      "floor {:.1f} ms: products {:.1f}, bytes {:.1f}\nstep  {:.1f} ms in {}, best {:.1f}: {:.0f} "
      "tokens/s, {:.1f} % of the floor's speed\n",
      1e3 * floor.Seconds(), 1e3 * floor.products, 1e3 * floor.bytes, 1e3 * step, precision,
      1e3 * best, tokens / step, 100 * floor.Seconds() / step);
  fmt::print(
      "{{\"precision\": \"{}\", \"step_ms\": {:.3f}, \"step_cpu_ms\": {:.3f}, \"floor_ms\": "
      "{:.3f}, "
      "\"tokens_per_s\": {:.1f}, \"of_floor\": {:.4f}}}\n",
      precision, 1e3 * step, 1e3 * Median(steps.cpu_seconds), 1e3 * floor.Seconds(), tokens / step,
      floor.Seconds() / step);
}

int Main(int argc, char** argv) {
  omp_set_num_threads(1);  // of oneDNN
  std::int64_t numbers[] = {6, 6, 384, 256, 8192, 4, 1, 20};
  for (int i = 1; i < argc && i <= 8; ++i) numbers[i - 1] = std::atoll(argv[i]);
  const ModelDims dims{.layers = numbers[0],
                       .heads = numbers[1],
                       .hidden = numbers[2],
                       .sequence = numbers[3],
                       .vocab = numbers[4]};
  const std::string precision = argc > 9 ? argv[9] : "fp32";
  if (argc > 10 || !CheckDims(dims) || numbers[5] < 1 || numbers[6] < 1 || numbers[7] < 4 ||
      (precision != "fp32" && precision != "bf16")) {
    fmt::print(stderr,
               "usage: step_bench [LAYERS HEADS HIDDEN SEQUENCE VOCAB BATCH THREADS STEPS "
               "fp32|bf16]; at least 4 steps\n");
    return 2;
  }
  const std::int64_t batch = numbers[5];
  const int threads = static_cast<int>(numbers[6]), steps = static_cast<int>(numbers[7]);
  const std::int64_t parameters = ParameterLayout(dims, StageSlice::Whole(dims)).size();
  fmt::print("GPT-2 of {:.1f} M parameters, {} x {} tokens, {} thread{}\n",
             1e-6 * static_cast<double>(parameters), batch, dims.sequence, threads,
             threads == 1 ? "" : "s");
  const Floor floor = MeasureFloor(dims, batch, parameters, threads);
  const StepTimes times = precision == "bf16"
                              ? TimeSteps<kernels::BFloat16>(dims, batch, threads, steps)
                              : TimeSteps<float>(dims, batch, threads, steps);
  PrintResult(floor, times, static_cast<double>(batch * dims.sequence), precision);
  return 0;
}

}  // namespace
}  // namespace adaptive_train

int main(int argc, char** argv) { return adaptive_train::Main(argc, argv); }
