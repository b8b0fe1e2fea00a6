// What a training step of GPT-2 takes on the processor: each operation, its share, and its floor,
// measured in the same run.
//
// usage: step_bench [LAYERS HEADS HIDDEN SEQUENCE VOCAB BATCH THREADS STEPS PRECISION], by default
//        step_bench 6 6 384 256 8192 4 1 20 fp32; PRECISION is fp32 or bf16
//
// A floor is what nobody gets below with the same products and the same memory:
// - Each product is made by the fastest of the libraries on one thread (tests/bench/bare_products.h),
//   over THREADS. Attention's are counted by half, as far as the causal mask lets them be.
// - Where the processor has a matrix unit, a product of floats may also be six products of bfloat16
//   numbers at their peak (kernels/cpu/tile_product.h). One of bfloat16 numbers is a single one.
// - Bytes that are read and written besides take what a copy of as many takes on THREADS threads.
//   Where they are only read or only written, less might do.
// What is computed on the way, such as exponentials, is not counted.
//
// A step is: clear gradients, forward, backward, norm, AdamW. Prints a table, and a line of JSON
// for scripts; step_cpu_ms, the processor time of all threads, is what others on the machine disturb
// least.
#include <fmt/format.h>
#include <time.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <map>
#include <string>
#include <vector>

#include "core/counter_random.h"
#include "kernels/cpu/tile_product.h"
#include "runtime/model/transformer_stage.h"
#include "runtime/train/adamw_groups.h"
#include "runtime/train/rank_state.h"
#include "tests/bench/bare_products.h"
#include "tests/bench/best_seconds.h"
#include "tests/bench/timed_device.h"

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

/// Copies of memory by some threads.
class Copies {
 public:
  explicit Copies(int threads) : pool_(threads) {}

  /// Of one that reads and writes so many bytes together, in memory that was used just before.
  double Seconds(std::int64_t bytes) {
    const auto [known, fresh] = seconds_.try_emplace(bytes);
    if (!fresh) return known->second;
    const std::int64_t half = bytes / 2, piece = half / pool_.threads() + 1;
    const std::vector<char> from(static_cast<std::size_t>(half), 1);
    std::vector<char> to(from.size());
    known->second = BestSeconds(8, [&] {
      pool_.ForPieces(half, piece, [&](std::int64_t begin, std::int64_t end) {
        std::memcpy(to.data() + begin, from.data() + begin, static_cast<std::size_t>(end - begin));
      });
    });
    return known->second;
  }

 private:
  kernels::cpu::ThreadPool pool_;
  std::map<std::int64_t, double> seconds_;
};

/// Floors of products and bytes, and what the fastest products were.
template <class T>
class Floors {
 public:
  explicit Floors(int threads) : threads_(threads), copies_(threads) {}

  double Seconds(const OperationCount& count) {
    double seconds = 0;
    for (const auto& [shape, times] : count.products)
      seconds += times * ProductSeconds(shape) / threads_;
    for (const auto& [bytes, times] : count.movements)
      seconds += static_cast<double>(times) * copies_.Seconds(bytes);
    return seconds;
  }

  void Print() const {
    fmt::print("products of {}; the fastest on one thread:\n", bare_.Libraries());
    for (const auto& [shape, time] : fastest_)
      fmt::print("  {:>6} x {:>6} x {:>6} {}{}  {:7.1f} GFLOP/s  {}\n", shape.rows, shape.columns,
                 shape.inner, shape.transpose_a ? 'T' : 'N', shape.transpose_b ? 'T' : 'N',
                 1e-9 * shape.Flops() / time.seconds, time.library);
  }

 private:
  /// Parts of both operands stay in the caches for several products, so that a product of floats
  /// is not bound by memory as one of bfloat16 numbers may be.
  static constexpr ProductShape kPeakShape{1024, 1024, 1024};
  /// Of n parts a number, those products of parts that are not below the last bit.
  static constexpr int kPartProducts =
      kernels::cpu::kTileParts<T> * (kernels::cpu::kTileParts<T> + 1) / 2;

  double ProductSeconds(const ProductShape& shape) {
    BareProducts::Time& fastest = fastest_[shape];
    if (!fastest.library.empty()) return fastest.seconds;
    fastest = bare_.Float(shape);
    if (kPartProducts > 1) {
      const BareProducts::Time* peak = bare_.BFloat16(kPeakShape);
      if (peak != nullptr)
        Take({kPartProducts * peak->seconds * shape.Flops() / kPeakShape.Flops(),
              fmt::format("{} at the peak of {}", kPartProducts, peak->library)},
             fastest);
    } else if (const BareProducts::Time* narrow = bare_.BFloat16(shape)) {
      Take(*narrow, fastest);
    }
    return fastest.seconds;
  }

  static void Take(const BareProducts::Time& other, BareProducts::Time& fastest) {
    if (other.seconds < fastest.seconds) fastest = other;
  }

  const int threads_;
  BareProducts bare_;
  Copies copies_;
  std::map<ProductShape, BareProducts::Time> fastest_;
};

double Median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

/// [steps but for the first two]
struct StepTimes {
  std::vector<double> seconds, cpu_seconds;
  std::map<std::string, OperationCount> operations;  // of all these steps
};

template <class T>
StepTimes TimeSteps(const ModelDims& dims, std::int64_t batch, int threads, int steps) {
  TimedDevice<T> device(threads);
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
    if (step == 2) device.Forget();
    if (step <= 2) continue;
    times.seconds.push_back(Seconds() - start);
    times.cpu_seconds.push_back(CpuSeconds() - cpu_start);
  }
  times.operations = device.Counts();
  return times;
}

void PrintRow(const char* name, double calls, double seconds, double step_s) {
  fmt::print("{:<28}{:>7.0f}{:>9.2f}{:>7.1f} %", name, calls, 1e3 * seconds,
             100 * seconds / step_s);
}

/// Gives the floor of a step in seconds.
template <class T>
double PrintOperations(const StepTimes& times, int threads) {
  Floors<T> floors(threads);
  const auto steps = static_cast<double>(times.seconds.size());
  double all = 0, rest = 0, floor = 0;
  for (const double seconds : times.seconds) all += seconds / steps;
  rest = all;
  fmt::print("{:<28}{:>7}{:>9}{:>9}{:>10}{:>10}\n", "a step's", "calls", "ms", "share", "floor ms",
             "of floor");
  for (const auto& [name, count] : times.operations) {
    const double seconds = count.seconds / steps, least = floors.Seconds(count) / steps;
    rest -= seconds;
    floor += least;
    PrintRow(name.c_str(), static_cast<double>(count.calls) / steps, seconds, all);
    fmt::print("{:>10.2f}{:>10.2f}\n", 1e3 * least, least / seconds);
  }
  PrintRow("the rest", 0, rest, all);
  fmt::print("\n");
  floors.Print();
  return floor;
}

void PrintResult(double floor, const StepTimes& steps, double tokens,
                 const std::string& precision) {
  const double step = Median(steps.seconds);
  const double best = *std::min_element(steps.seconds.begin(), steps.seconds.end());
  fmt::print(
      "floor {:.1f} ms\nstep  {:.1f} ms in {}, best {:.1f}: {:.0f} tokens/s, {:.1f} % of the "
      "floor's "
      "speed\n",
      1e3 * floor, 1e3 * step, precision, 1e3 * best, tokens / step, 100 * floor / step);
  fmt::print(
      "{{\"precision\": \"{}\", \"step_ms\": {:.3f}, \"step_cpu_ms\": {:.3f}, \"floor_ms\": "
      "{:.3f}, \"tokens_per_s\": {:.1f}, \"of_floor\": {:.4f}}}\n",
      precision, 1e3 * step, 1e3 * Median(steps.cpu_seconds), 1e3 * floor, tokens / step,
      floor / step);
}

template <class T>
void Bench(const ModelDims& dims, std::int64_t batch, int threads, int steps,
           const std::string& precision) {
  const StepTimes times = TimeSteps<T>(dims, batch, threads, steps);
  const double floor = PrintOperations<T>(times, threads);
  PrintResult(floor, times, static_cast<double>(batch * dims.sequence), precision);
}

int Main(int argc, char** argv) {
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
  if (precision == "bf16") {
    Bench<kernels::BFloat16>(dims, batch, threads, steps, precision);
  } else {
    Bench<float>(dims, batch, threads, steps, precision);
  }
  return 0;
}

}  // namespace
}  // namespace adaptive_train

int main(int argc, char** argv) { return adaptive_train::Main(argc, argv); }
