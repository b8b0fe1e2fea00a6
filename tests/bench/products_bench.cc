// Speed of the device's products, against bare oneDNN calls in the same run.
//
// products_bench [threads]: GFLOP/s for each shape and ratios to oneDNN. The columns are one whole
// dnnl_sgemm on one thread; the device's operation on arrays of float in vectors alone; and on
// float and bfloat16 with all that the processor has. Then attention's and the head's times forward
// and backward, and their GFLOP/s. The best of several alternating repetitions counts.
#include <fmt/core.h>
#include <hwy/highway.h>
#include <omp.h>
#include <oneapi/dnnl/dnnl.h>

#include <hwy/highway.h>
#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <ctime>
#include <functional>
#include <vector>

#include "core/counter_random.h"
#include "kernels/cpu/cpu_device.h"

namespace adaptive_train {
namespace {

using kernels::Accumulator;
using kernels::BFloat16;
using kernels::cpu::CpuDevice;

constexpr int kRepetitions = 12;

/// With one thread its processor time, which other load hardly affects; otherwise wall-clock time.
double Now(int threads) {
  timespec now{};
  clock_gettime(threads == 1 ? CLOCK_THREAD_CPUTIME_ID : CLOCK_MONOTONIC, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

/// The best time of each in seconds, measured alternately.
std::vector<double> BestSeconds(int threads, const std::vector<std::function<void()>>& all) {
  std::vector<double> best(all.size(), 1e9);
  for (int repetition = 0; repetition < kRepetitions; ++repetition) {
    for (std::size_t i = 0; i < all.size(); ++i) {
      const double start = Now(threads);
      all[i]();
      best[i] = std::min(best[i], Now(threads) - start);
    }
  }
  return best;
}

template <class E>
std::vector<E> RandomNumbers(std::int64_t count, std::uint32_t which) {
  const CounterRandom random(1, RandomPurpose::kInitialization);
  std::vector<E> numbers(static_cast<std::size_t>(count));
  for (std::size_t i = 0; i < numbers.size(); ++i) {
    numbers[i] = kernels::Rounded<E>(random.Uniform({.step = which, .element = i}) - 0.5F);
  }
  return numbers;
}

enum class Product { kForward, kInputGradient, kWeightGradient };

struct Shape {
  Product product;
  std::int64_t rows, in, out;
};

/// One product on arrays of T, that the device and bare oneDNN compute.
template <class T>
class Operands {
 public:
  explicit Operands(const Shape& shape)
      : shape_(shape),
        input_(RandomNumbers<T>(shape.rows * shape.in, 1)),
        weight_(RandomNumbers<T>(shape.in * shape.out, 2)),
        output_(RandomNumbers<T>(shape.rows * shape.out, 3)),
        d_weight_(weight_.size()) {}

  void OnDevice(CpuDevice<T>& device) {
    const auto& [product, rows, in, out] = shape_;
    switch (product) {
      case Product::kForward:
        return device.Matmul({.rows = rows,
                              .columns = out,
                              .inner = in,
                              .a = input_.data(),
                              .b = weight_.data(),
                              .c = output_.data()});
      case Product::kInputGradient:
        return device.Matmul({.rows = rows,
                              .columns = in,
                              .inner = out,
                              .a = output_.data(),
                              .b = weight_.data(),
                              .transpose_b = true,
                              .c = input_.data()});
      case Product::kWeightGradient:
        return device.WeightGradient({.rows = rows,
                                      .in = in,
                                      .out = out,
                                      .input = input_.data(),
                                      .d_output = output_.data(),
                                      .d_weight = d_weight_.data()});
    }
  }

  void Bare() {
    const auto& [product, rows, in, out] = shape_;
    float *input = input_.data(), *weight = weight_.data(), *output = output_.data();
    switch (product) {
      case Product::kForward:
        dnnl_sgemm('N', 'N', rows, out, in, 1, input, in, weight, out, 0, output, out);
        return;
      case Product::kInputGradient:
        dnnl_sgemm('N', 'T', rows, in, out, 1, output, out, weight, out, 0, input, in);
        return;
      case Product::kWeightGradient:
        dnnl_sgemm('T', 'N', in, out, rows, 1, input, in, output, out, 1, d_weight_.data(), out);
        return;
    }
  }

 private:
  const Shape shape_;
  std::vector<T> input_, weight_, output_;
  std::vector<Accumulator<T>> d_weight_;
};

void CompareProducts(int threads, CpuDevice<float>& vectors, CpuDevice<float>& device,
                     CpuDevice<BFloat16>& narrow) {
  fmt::print("{:<10}{:>6}{:>6}{:>7}{:>10}{:>10}{:>10}{:>10}   GFLOP/s{:>10}{:>10}\n", "product",
             "rows", "in", "out", "oneDNN", "vectors", "float", "bfloat16", "vectors", "float");
  std::vector<Shape> shapes;
  for (const auto& [in, out] : {std::pair<std::int64_t, std::int64_t>{384, 1152},
                                {384, 384},
                                {384, 1536},
                                {1536, 384},
                                {384, 8192},
                                {768, 2304},
                                {768, 3072},
                                {3072, 768}}) {
    for (const Product product :
         {Product::kForward, Product::kInputGradient, Product::kWeightGradient})
      shapes.push_back({product, 1024, in, out});
  }
  for (const Shape& shape : shapes) {
    Operands<float> operands(shape);
    Operands<BFloat16> narrow_operands(shape);
    const std::vector<double> seconds = BestSeconds(
        threads, {[&] { operands.Bare(); }, [&] { operands.OnDevice(vectors); },
                  [&] { operands.OnDevice(device); }, [&] { narrow_operands.OnDevice(narrow); }});
    const double flops = 2e-9 * static_cast<double>(shape.rows * shape.in * shape.out);
    const char* const names[] = {"forward", "d_input", "d_weight"};
    fmt::print("{:<10}{:>6}{:>6}{:>7}{:>10.1f}{:>10.1f}{:>10.1f}{:>10.1f}{:>20.3f}{:>10.3f}\n",
               names[static_cast<int>(shape.product)], shape.rows, shape.in, shape.out,
               flops / seconds[0], flops / seconds[1], flops / seconds[2], flops / seconds[3],
               seconds[0] / seconds[1], seconds[0] / seconds[2]);
  }
}

void PrintTime(const char* what, double seconds, double flops) {
  fmt::print("{:<52}{:>9.2f} ms{:>9.1f} GFLOP/s\n", what, seconds * 1e3, flops / seconds * 1e-9);
}

/// FLOPs are those of the visible pairs of query and key.
template <class T>
void TimeAttention(int threads, CpuDevice<T>& device, const char* scalar,
                   const kernels::AttentionShape& shape) {
  const std::int64_t tokens = shape.batch * shape.sequence;
  const std::int64_t qkv_size = tokens * (shape.heads + 2 * shape.kv_heads) * shape.head_size;
  const std::vector<T> qkv = RandomNumbers<T>(qkv_size, 1);
  std::vector<T> d_qkv(qkv.size()),
      output = RandomNumbers<T>(tokens * shape.heads * shape.head_size, 2);
  const std::vector<T> d_output = output;
  std::vector<float> log_sum_exp(static_cast<std::size_t>(tokens * shape.heads));
  const std::vector<double> seconds = BestSeconds(
      threads, {[&] {
                  device.Attention({shape, qkv.data(), output.data(), log_sum_exp.data()});
                },
                [&] {
                  device.AttentionBackward({shape, qkv.data(), output.data(), log_sum_exp.data(),
                                            d_output.data(), d_qkv.data()});
                }});
  const std::int64_t pairs =
      shape.causal ? shape.sequence * (shape.sequence + 1) / 2 : shape.sequence * shape.sequence;
  const double product =
      2.0 * static_cast<double>(shape.batch * shape.heads * pairs * shape.head_size);
  const std::string name = fmt::format("attention {} B{} T{} {}x{}", scalar, shape.batch,
                                       shape.sequence, shape.heads, shape.head_size);
  PrintTime((name + " forward").c_str(), seconds[0], 2 * product);
  PrintTime((name + " backward").c_str(), seconds[1], 5 * product);
}

template <class T>
void TimeHead(int threads, CpuDevice<T>& device, const char* scalar, std::int64_t rows,
              std::int64_t columns, std::int64_t vocab) {
  const std::vector<T> input = RandomNumbers<T>(rows * columns, 1),
                       weight = RandomNumbers<T>(vocab * columns, 2);
  const std::vector<std::int32_t> targets(static_cast<std::size_t>(rows), 1);
  std::vector<float> losses(targets.size()), d_weight(weight.size());
  std::vector<T> d_input(input.size());
  kernels::HeadLossArguments<T> arguments{.rows = rows,
                                          .columns = columns,
                                          .vocab = vocab,
                                          .input = input.data(),
                                          .weight = weight.data(),
                                          .targets = targets.data(),
                                          .losses = losses.data(),
                                          .gradient_scale = 1,
                                          .d_weight = d_weight.data()};
  const std::vector<double> seconds = BestSeconds(threads, {[&] {
                                                              arguments.d_input = nullptr;
                                                              device.HeadLoss(arguments);
                                                            },
                                                            [&] {
                                                              arguments.d_input = d_input.data();
                                                              device.HeadLoss(arguments);
                                                            }});
  const double product = 2.0 * static_cast<double>(rows * columns * vocab);
  const std::string name =
      fmt::format("head {} {} rows, {} wide, vocabulary {}", scalar, rows, columns, vocab);
  PrintTime((name + ", loss").c_str(), seconds[0], product);
  PrintTime((name + ", all").c_str(), seconds[1], 3 * product);
}

void Run(int threads) {
  omp_set_num_threads(1);
  // Highway cannot disable matrix units otherwise.
  hwy::SetSupportedTargetsForTest(hwy::SupportedTargets() & HWY_TARGETS);
  CpuDevice<float> vectors(threads);
  hwy::SetSupportedTargetsForTest(0);
  CpuDevice<float> device(threads);
  CpuDevice<BFloat16> narrow(threads);
  fmt::print("{}\n\n", device.Description());
  CompareProducts(threads, vectors, device, narrow);
  fmt::print("\n");
  for (const kernels::AttentionShape& shape : {kernels::AttentionShape{4, 256, 6, 6, 64, true},
                                               kernels::AttentionShape{4, 256, 12, 12, 64, true},
                                               kernels::AttentionShape{1, 2048, 12, 4, 64, true}}) {
    TimeAttention(threads, device, "float", shape);
    TimeAttention(threads, narrow, "bfloat16", shape);
  }
  TimeHead(threads, vectors, "vectors", 1024, 384, 8192);
  TimeHead(threads, device, "float", 1024, 384, 8192);
  TimeHead(threads, narrow, "bfloat16", 1024, 384, 8192);
  TimeHead(threads, device, "float", 1024, 768, 50257);
}

}  // namespace
}  // namespace adaptive_train

int main(int argc, char** argv) {
  adaptive_train::Run(argc > 1 ? std::max(1, std::atoi(argv[1])) : 1);
  return 0;
}
