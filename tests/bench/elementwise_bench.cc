// How long every operation but the products takes on the processor, against a plain copy of as many
// bytes.
//
// elementwise_bench [THREADS [OPERATION]]: the floor is std::memcpy, half of the bytes read and
// half written, by as many threads. Copy and operation take turns, and the best time of each
// counts. Bytes are those that an operation must move: what it reads once, what it writes once.
// Where they are not far above the last cache, that helps the copy as it helps the operation.
#include <time.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/counter_random.h"
#include "kernels/cpu/cpu_device.h"

namespace adaptive_train::kernels {
namespace {

constexpr std::int64_t kRows = 8192, kColumns = 1024, kElements = kRows * kColumns;
constexpr std::int64_t kParameters = 13900000, kVocab = 32000;
constexpr int kRounds = 40;

/// Of the processor where there is one thread, so that what else runs on the machine counts little;
/// otherwise of the clock.
double Now(int threads) {
  timespec time{};
  clock_gettime(threads == 1 ? CLOCK_THREAD_CPUTIME_ID : CLOCK_MONOTONIC, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

double Seconds(int threads, const std::function<void()>& work) {
  const double start = Now(threads);
  work();
  return Now(threads) - start;
}

class Bench {
 public:
  Bench(int threads, std::string only)
      : pool_(threads), only_(std::move(only)), from_(kMostBytes / 2, 1), to_(kMostBytes / 2, 2) {
    std::printf("%-22s %-9s %9s %9s %9s %7s\n", "operation", "scalar", "MB", "ms", "copy ms",
                "ratio");
  }

  void Run(const char* operation, const char* scalar, double bytes,
           const std::function<void()>& work) {
    if (std::string_view(operation).find(only_) == std::string_view::npos) return;
    double copy = 1e9, best = 1e9;
    for (int round = 0; round < kRounds; ++round) {
      copy = std::min(
          copy, Seconds(pool_.threads(), [&] { Copy(static_cast<std::int64_t>(bytes / 2)); }));
      best = std::min(best, Seconds(pool_.threads(), work));
    }
    std::printf("%-22s %-9s %9.1f %9.2f %9.2f %7.2f\n", operation, scalar, bytes / 1e6, best * 1e3,
                copy * 1e3, best / copy);
  }

 private:
  static constexpr std::size_t kMostBytes = std::size_t{1} << 30;

  void Copy(std::int64_t bytes) {
    pool_.ForPieces(bytes, (bytes + pool_.threads() - 1) / pool_.threads(),
                    [this](std::int64_t begin, std::int64_t end) {
                      std::memcpy(to_.data() + begin, from_.data() + begin,
                                  static_cast<std::size_t>(end - begin));
                    });
  }

  cpu::ThreadPool pool_;
  std::string only_;  // part of the name of the operations to run
  std::vector<char> from_, to_;
};

template <class T>
std::vector<T> Normals(std::int64_t count) {
  const CounterRandom random(1, RandomPurpose::kInitialization);
  std::vector<T> values;
  values.reserve(static_cast<std::size_t>(count));
  for (std::uint64_t block = 0; values.size() < static_cast<std::size_t>(count); ++block) {
    for (const float value : random.Normals({}, block)) values.push_back(Rounded<T>(value));
  }
  return values;
}

template <class T>
void RunNorms(Bench& bench, cpu::CpuDevice<T>& device, const char* scalar) {
  const auto input = Normals<T>(kElements), weight = Normals<T>(kColumns);
  auto d_output = input, output = input;
  std::vector<float> mean(kRows), reciprocal_std(kRows), d_weight(kColumns), d_bias(kColumns);
  const NormArguments<T> forward{.rows = kRows,
                                 .columns = kColumns,
                                 .input = input.data(),
                                 .weight = weight.data(),
                                 .bias = weight.data(),
                                 .output = output.data(),
                                 .mean = mean.data(),
                                 .reciprocal_std = reciprocal_std.data()};
  NormBackwardArguments<T> backward{.rows = kRows,
                                    .columns = kColumns,
                                    .d_output = d_output.data(),
                                    .input = input.data(),
                                    .weight = weight.data(),
                                    .mean = mean.data(),
                                    .reciprocal_std = reciprocal_std.data(),
                                    .d_input = output.data(),
                                    .d_weight = d_weight.data(),
                                    .d_bias = d_bias.data()};
  const double bytes = kElements * sizeof(T);
  bench.Run("LayerNorm", scalar, 2 * bytes, [&] { device.LayerNorm(forward); });
  bench.Run("RmsNorm", scalar, 2 * bytes, [&] { device.RmsNorm(forward); });
  bench.Run("LayerNormBackward", scalar, 3 * bytes, [&] { device.LayerNormBackward(backward); });
  backward.accumulate = true;
  bench.Run("LayerNormBackward +=", scalar, 4 * bytes, [&] { device.LayerNormBackward(backward); });
  bench.Run("RmsNormBackward +=", scalar, 4 * bytes, [&] { device.RmsNormBackward(backward); });
}

template <class T>
void RunUnits(Bench& bench, cpu::CpuDevice<T>& device, const char* scalar) {
  const auto input = Normals<T>(2 * kElements), d_output = Normals<T>(kElements);
  std::vector<T> output(input.size());
  const double bytes = kElements * sizeof(T);
  for (const GeluForm form : {GeluForm::kTanh, GeluForm::kErf}) {
    const bool tanh = form == GeluForm::kTanh;
    bench.Run(tanh ? "Gelu tanh" : "Gelu erf", scalar, 2 * bytes, [&] {
      device.Gelu(
          {.count = kElements, .form = form, .input = input.data(), .output = output.data()});
    });
    bench.Run(tanh ? "GeluBackward tanh" : "GeluBackward erf", scalar, 3 * bytes, [&] {
      device.GeluBackward({.count = kElements,
                           .form = form,
                           .input = input.data(),
                           .d_output = d_output.data(),
                           .d_input = output.data()});
    });
  }
  bench.Run("Swiglu", scalar, 3 * bytes, [&] {
    device.Swiglu(
        {.rows = kRows, .columns = kColumns, .input = input.data(), .output = output.data()});
  });
  bench.Run("SwigluBackward", scalar, 5 * bytes, [&] {
    device.SwigluBackward({.rows = kRows,
                           .columns = kColumns,
                           .input = input.data(),
                           .d_output = d_output.data(),
                           .d_input = output.data()});
  });
}

template <class T>
void RunEmbedding(Bench& bench, cpu::CpuDevice<T>& device, const char* scalar) {
  constexpr std::int64_t kSequence = 1024;
  const auto token_weight = Normals<T>(kVocab * kColumns), position = Normals<T>(kElements / 8);
  auto values = Normals<T>(kElements);
  std::vector<float> d_token(token_weight.size()), d_position(position.size());
  std::vector<std::int32_t> tokens;
  const CounterRandom random(1, RandomPurpose::kSampleOrder);
  for (std::uint64_t i = 0; i < kRows; ++i) {
    tokens.push_back(static_cast<std::int32_t>(random.Bits({.element = i}) % kVocab));
  }
  const double bytes = kElements * sizeof(T), sums = kElements * sizeof(float);
  bench.Run("Embedding", scalar, 2 * bytes, [&] {
    device.Embedding({.batch = kRows / kSequence,
                      .sequence = kSequence,
                      .columns = kColumns,
                      .tokens = tokens.data(),
                      .token_weight = token_weight.data(),
                      .position_weight = position.data(),
                      .output = values.data()});
  });
  bench.Run("EmbeddingBackward", scalar, bytes + 2 * sums, [&] {
    device.EmbeddingBackward({.batch = kRows / kSequence,
                              .sequence = kSequence,
                              .columns = kColumns,
                              .tokens = tokens.data(),
                              .d_output = values.data(),
                              .d_token_weight = d_token.data(),
                              .d_position_weight = d_position.data()});
  });
  bench.Run("Rope", scalar, 2 * bytes, [&] {
    device.Rope({.rows = kRows,
                 .sequence = kSequence,
                 .heads = kColumns / 64,
                 .rotated_heads = kColumns / 64,
                 .head_size = 64,
                 .values = values.data()});
  });
}

template <class T>
void RunDropout(Bench& bench, cpu::CpuDevice<T>& device, const char* scalar) {
  const auto input = Normals<T>(kElements);
  auto output = input;
  DropoutArguments<T> x{.elements = kElements / 8,
                        .end = kElements,
                        .probability = 0.1,
                        .random = CounterRandom(1, RandomPurpose::kDropout),
                        .input = input.data(),
                        .output = output.data()};
  const double bytes = kElements * sizeof(T);
  bench.Run("Dropout", scalar, 2 * bytes, [&] { device.Dropout(x); });
  x.residual = output.data();
  bench.Run("Dropout + residual", scalar, 3 * bytes, [&] { device.Dropout(x); });
}

template <class T>
void RunArenas(Bench& bench, cpu::CpuDevice<T>& device, const char* scalar) {
  auto parameters = Normals<float>(kParameters), gradients = parameters;
  auto first = parameters, second = parameters;
  for (float& value : second) value *= value;
  std::vector<T> weights(parameters.size());
  const bool mixed = sizeof(T) != sizeof(float);
  AdamWArguments<T> x{.count = kParameters,
                      .parameters = parameters.data(),
                      .gradients = gradients.data(),
                      .first_moments = first.data(),
                      .second_moments = second.data(),
                      .weights = mixed ? weights.data() : nullptr,
                      .step = 10,
                      .lr = 1e-4,
                      .weight_decay = 0.1,
                      .gradient_scale = 0.5};
  bench.Run("AdamW", scalar, kParameters * (mixed ? 30.0 : 28.0), [&] { device.AdamW(x); });
  bench.Run("Round", scalar, kParameters * (4.0 + sizeof(T)), [&] {
    device.Round(
        {.count = kParameters, .parameters = parameters.data(), .weights = weights.data()});
  });
  volatile double sum = 0;  // nobody may leave the sums out
  bench.Run("Sum", "float", kParameters * 4.0,
            [&] { sum = device.Sum(kParameters, gradients.data()); });
  bench.Run("SquaredNorm", "float", kParameters * 4.0,
            [&] { sum = device.SquaredNorm(kParameters, gradients.data()); });
}

template <class T>
void RunAll(Bench& bench, int threads, const char* scalar) {
  cpu::CpuDevice<T> device(threads);
  RunArenas(bench, device, scalar);
  RunNorms(bench, device, scalar);
  RunUnits(bench, device, scalar);
  RunEmbedding(bench, device, scalar);
  RunDropout(bench, device, scalar);
}

}  // namespace
}  // namespace adaptive_train::kernels

int main(int argc, char** argv) {
  using namespace adaptive_train::kernels;
  const int threads = argc > 1 ? std::max(1, std::atoi(argv[1])) : 1;
  Bench bench(threads, argc > 2 ? argv[2] : "");
  RunAll<float>(bench, threads, "float");
  RunAll<BFloat16>(bench, threads, "bfloat16");
  RunAll<Float16>(bench, threads, "float16");
}
