// What a device's operations move and compute per second, against copies within its own memory.
//
// device_bench cpu|GPU-UUID fp32|bf16|fp16 [ELEMENTS [ROWS]]: passes over arenas of ELEMENTS
// (100 M) floats, and the operations of a GPT-2 124M layer on ROWS (8192) tokens in sequences of
// 1024. Each line is the median of kRounds rounds. Passes: the bytes that must be read and written,
// and their share of the bytes that a copy moves in the same time. Operations that return a value
// are timed one by one, with the wait for it.
#include <fmt/core.h>

#include <algorithm>
#include <chrono>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "core/counter_random.h"
#include "kernels/make_device.h"

namespace adaptive_train {
namespace {

using kernels::Buffer;
using kernels::ValueFormat;

constexpr int kRounds = 9;

double Now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

template <class T>
class Bench {
 public:
  Bench(kernels::Device<T>& device, std::int64_t count, std::int64_t rows)
      : device_(device), count_(count), rows_(rows), pattern_(1 << 18) {
    const CounterRandom random(1, RandomPurpose::kInitialization);
    for (std::size_t i = 0; i < pattern_.size(); ++i)
      pattern_[i] = 0.1F * random.Normal({.element = i});
  }

  void Run() {
    Passes();
    Selection();
    Layer();
  }

 private:
  /// A buffer of normal numbers.
  template <class E>
  Buffer<E> Numbers(std::int64_t count) {
    Buffer<E> buffer(device_, static_cast<std::size_t>(count));
    std::vector<E> some;
    for (const float value : pattern_) some.push_back(kernels::Rounded<E>(value));
    for (std::size_t at = 0; at < buffer.size(); at += some.size())
      device_.CopyFromHost(buffer.data() + at, some.data(),
                           std::min(some.size(), buffer.size() - at) * sizeof(E));
    return buffer;
  }

  /// The median of one call's seconds, of `calls` that are queued together.
  double Seconds(
      int calls, const std::function<void()>& call, const std::function<void()>& before = [] {}) {
    std::vector<double> seconds;
    for (int round = 0; round <= kRounds; ++round) {
      before();
      Wait();
      const double start = Now();
      for (int i = 0; i < calls; ++i) call();
      Wait();
      if (round > 0) seconds.push_back((Now() - start) / calls);
    }
    std::nth_element(seconds.begin(), seconds.begin() + kRounds / 2, seconds.end());
    return seconds[kRounds / 2];
  }

  /// All work that was queued is done.
  void Wait() {
    float value;
    device_.CopyToHost(&value, one_.data(), sizeof value);
  }

  void PrintPass(const std::string& name, double bytes_per_element, double seconds) {
    const double rate = bytes_per_element * static_cast<double>(count_) / seconds;
    if (copy_rate_ == 0) copy_rate_ = rate;
    fmt::print("{:<36} {:>10.3f} ms {:>9.1f} GB/s {:>6.1f} % of a copy\n", name, 1e3 * seconds,
               1e-9 * rate, 100 * rate / copy_rate_);
  }
  void PrintOperation(const std::string& name, double flops, double seconds) {
    fmt::print("{:<36} {:>10.3f} ms {:>9.2f} TFLOP/s\n", name, 1e3 * seconds,
               1e-12 * flops / seconds);
  }

  void Passes() {
    Buffer<float> a = Numbers<float>(count_), b = Numbers<float>(count_);
    PrintPass("copy", 8, Seconds(5, [&] { device_.CopyWithin(b.data(), a.data(), a.bytes()); }));
    PrintPass("AddInto", 12, Seconds(5, [&] { device_.AddInto(count_, a.data(), b.data()); }));
    PrintPass("SquaredNorm", 4, Seconds(1, [&] { device_.SquaredNorm(count_, a.data()); }));
    PrintPass("Largest", 8, Seconds(1, [&] { device_.Largest(count_, a.data(), b.data()); }));
    Buffer<std::byte> packed(device_, kernels::Int8Bytes(static_cast<std::size_t>(count_)));
    Buffer<T> weights(device_, static_cast<std::size_t>(count_));
    const double of_t = sizeof(T), of_packed = 1 + 4.0 / kernels::kInt8Block;
    PrintPass("PackInt8", 4 + of_packed,
              Seconds(5, [&] { device_.PackInt8(count_, a.data(), packed.data()); }));
    PrintPass("UnpackInt8", of_packed + of_t,
              Seconds(5, [&] { device_.UnpackInt8(count_, packed.data(), weights.data()); }));
    PrintPass("Round", 4 + of_t, Seconds(5, [&] {
                device_.Round({.count = count_, .parameters = a.data(), .weights = weights.data()});
              }));
    Buffer<float> first = Numbers<float>(count_), second(device_, a.size());
    device_.Clear(second.data(), second.bytes());
    kernels::AdamWArguments<T> adamw{.count = count_,
                                     .parameters = a.data(),
                                     .gradients = b.data(),
                                     .first_moments = first.data(),
                                     .second_moments = second.data()};
    if (!std::is_same_v<T, float>) adamw.weights = weights.data();
    PrintPass("AdamW", 28 + (std::is_same_v<T, float> ? 0 : of_t),
              Seconds(5, [&] { device_.AdamW(adamw); }));
  }

  void Selection() {
    const Buffer<float> gradients = Numbers<float>(count_), before = Numbers<float>(count_);
    Buffer<float> residuals = Numbers<float>(count_);
    Buffer<std::uint64_t> bitmap(device_, static_cast<std::size_t>((count_ + 63) / 64));
    Buffer<std::uint16_t> values(device_, residuals.size());
    const auto put_back = [&] {
      device_.CopyWithin(residuals.data(), before.data(), residuals.bytes());
    };
    for (const double density : {0.01, 0.05, 0.30}) {
      const auto wanted = static_cast<std::int64_t>(density * static_cast<double>(count_));
      kernels::SelectArguments<T> select{.count = count_,
                                         .gradients = gradients.data(),
                                         .residuals = residuals.data(),
                                         .bitmap = bitmap.data(),
                                         .values = values.data()};
      PrintPass(fmt::format("Threshold {:.2f}", density), 16, Seconds(1, [&] {
                  select.threshold = device_.Threshold({.count = count_,
                                                        .gradients = gradients.data(),
                                                        .residuals = before.data(),
                                                        .wanted = wanted});
                }));
      std::int64_t selected = 0;
      const double seconds = Seconds(
          1, [&] { selected = device_.Select(select).count; }, put_back);
      const double sent = 2 * static_cast<double>(selected) / static_cast<double>(count_);
      PrintPass(fmt::format("Select {:.2f}", density), 12.125 + sent, seconds);
      PrintPass(fmt::format("AddSelected {:.2f}", density), 0.125 + 5 * sent, Seconds(1, [&] {
                  device_.AddSelected({.count = count_,
                                       .bitmap = bitmap.data(),
                                       .format = ValueFormat::kBFloat16,
                                       .values = values.data(),
                                       .into = residuals.data()});
                }));
    }
  }

  /// x[rows, in] w[out, in]^T, alone and with what comes after it, its input's gradient and its
  /// weight's.
  void Products(const std::string& name, std::int64_t in, std::int64_t out) {
    const Buffer<T> x = Numbers<T>(rows_ * in), w = Numbers<T>(out * in);
    const Buffer<T> bias = Numbers<T>(out), residual = Numbers<T>(rows_ * out);
    Buffer<T> y = Numbers<T>(rows_ * out), dx = Numbers<T>(rows_ * in);
    Buffer<T> activated = Numbers<T>(rows_ * out);
    Buffer<float> dw = Numbers<float>(in * out);
    const double flops = 2.0 * static_cast<double>(rows_) * static_cast<double>(in * out);
    const kernels::MatmulArguments<T> alone{.rows = rows_,
                                            .columns = out,
                                            .inner = in,
                                            .a = x.data(),
                                            .b = w.data(),
                                            .transpose_b = true,
                                            .c = y.data()};
    const auto print = [&](const std::string& with, const kernels::MatmulArguments<T>& product) {
      PrintOperation(name + with, flops, Seconds(5, [&] { device_.Matmul(product); }));
    };
    print("", alone);
    auto with = alone;
    with.bias = bias.data();
    with.residual = residual.data();
    print(", bias, residual", with);
    with.residual = nullptr;
    with.gelu = kernels::GeluForm::kTanh;
    with.activated = activated.data();
    print(", bias, GELU", with);
    with = alone;
    with.gelu = kernels::GeluForm::kTanh;
    with.gelu_input = residual.data();
    print(", times GELU's derivative", with);
    PrintOperation(name + ", input's gradient", flops, Seconds(5, [&] {
                     device_.Matmul({.rows = rows_,
                                     .columns = in,
                                     .inner = out,
                                     .a = y.data(),
                                     .b = w.data(),
                                     .c = dx.data()});
                   }));
    PrintOperation(name + ", weight's gradient", flops, Seconds(5, [&] {
                     device_.WeightGradient({.rows = rows_,
                                             .in = in,
                                             .out = out,
                                             .input = x.data(),
                                             .d_output = y.data(),
                                             .d_weight = dw.data()});
                   }));
  }

  void Attention(std::int64_t heads, std::int64_t head_size) {
    kernels::AttentionShape shape;
    shape.sequence = std::min<std::int64_t>(1024, rows_);
    shape.batch = rows_ / shape.sequence;
    shape.heads = shape.kv_heads = heads;
    shape.head_size = head_size;
    shape.causal = true;
    const std::int64_t size = shape.batch * shape.sequence * heads * head_size;
    const Buffer<T> qkv = Numbers<T>(3 * size), d_output = Numbers<T>(size);
    Buffer<T> output = Numbers<T>(size), d_qkv = Numbers<T>(3 * size);
    Buffer<float> log_sum_exp = Numbers<float>(shape.batch * shape.sequence * heads);
    const double flops = 2.0 * static_cast<double>(size) * static_cast<double>(shape.sequence);
    const std::string heads_of = fmt::format(", heads of {}", head_size);
    PrintOperation("Attention" + heads_of, flops, Seconds(3, [&] {
                     device_.Attention({.shape = shape,
                                        .qkv = qkv.data(),
                                        .output = output.data(),
                                        .log_sum_exp = log_sum_exp.data()});
                   }));
    PrintOperation("AttentionBackward" + heads_of, 2.5 * flops, Seconds(3, [&] {
                     device_.AttentionBackward({.shape = shape,
                                                .qkv = qkv.data(),
                                                .output = output.data(),
                                                .log_sum_exp = log_sum_exp.data(),
                                                .d_output = d_output.data(),
                                                .d_qkv = d_qkv.data()});
                   }));
  }

  void HeadLoss(std::int64_t columns, std::int64_t vocab) {
    const Buffer<T> input = Numbers<T>(rows_ * columns), weight = Numbers<T>(vocab * columns);
    Buffer<T> d_input = Numbers<T>(rows_ * columns);
    Buffer<float> losses = Numbers<float>(rows_), d_weight = Numbers<float>(vocab * columns);
    Buffer<std::int32_t> targets(device_, static_cast<std::size_t>(rows_));
    device_.Clear(targets.data(), targets.bytes());
    const double flops = 6.0 * static_cast<double>(rows_) * static_cast<double>(columns * vocab);
    PrintOperation(fmt::format("HeadLoss, {} entries", vocab), flops, Seconds(1, [&] {
                     device_.HeadLoss({.rows = rows_,
                                       .columns = columns,
                                       .vocab = vocab,
                                       .input = input.data(),
                                       .weight = weight.data(),
                                       .targets = targets.data(),
                                       .losses = losses.data(),
                                       .gradient_scale = 1,
                                       .d_input = d_input.data(),
                                       .d_weight = d_weight.data()});
                   }));
  }

  void PrintBytes(const std::string& name, double bytes, double seconds) {
    fmt::print("{:<36} {:>10.3f} ms {:>9.1f} GB/s {:>6.1f} % of a copy\n", name, 1e3 * seconds,
               1e-9 * bytes / seconds, 100 * bytes / seconds / copy_rate_);
  }

  /// What is between the products, by the bytes that must be read and written.
  void Between(std::int64_t hidden) {
    const std::int64_t size = rows_ * hidden, wide = 4 * size;
    const double bytes = static_cast<double>(size) * sizeof(T);
    const Buffer<T> x = Numbers<T>(size), d = Numbers<T>(size);
    const Buffer<T> weight = Numbers<T>(hidden), bias = Numbers<T>(hidden);
    Buffer<T> y = Numbers<T>(size), z = Numbers<T>(wide);
    Buffer<float> mean = Numbers<float>(rows_), reciprocal_std = Numbers<float>(rows_);
    Buffer<float> d_weight = Numbers<float>(4 * hidden), d_bias = Numbers<float>(hidden);
    PrintBytes("LayerNorm", 2 * bytes, Seconds(5, [&] {
                 device_.LayerNorm({.rows = rows_,
                                    .columns = hidden,
                                    .epsilon = 1e-5,
                                    .input = x.data(),
                                    .weight = weight.data(),
                                    .bias = bias.data(),
                                    .output = y.data(),
                                    .mean = mean.data(),
                                    .reciprocal_std = reciprocal_std.data()});
               }));
    PrintBytes("LayerNormBackward", 4 * bytes, Seconds(5, [&] {
                 device_.LayerNormBackward({.rows = rows_,
                                            .columns = hidden,
                                            .d_output = d.data(),
                                            .input = x.data(),
                                            .weight = weight.data(),
                                            .mean = mean.data(),
                                            .reciprocal_std = reciprocal_std.data(),
                                            .d_input = y.data(),
                                            .accumulate = true,
                                            .d_weight = d_weight.data(),
                                            .d_bias = d_bias.data()});
               }));
    const Buffer<T> u = Numbers<T>(wide);
    PrintBytes("Gelu", 8 * bytes, Seconds(5, [&] {
                 device_.Gelu({.count = wide,
                               .form = kernels::GeluForm::kTanh,
                               .input = u.data(),
                               .output = z.data()});
               }));
    PrintBytes("GeluBackward", 12 * bytes, Seconds(5, [&] {
                 device_.GeluBackward({.count = wide,
                                       .form = kernels::GeluForm::kTanh,
                                       .input = u.data(),
                                       .d_output = z.data(),
                                       .d_input = z.data()});
               }));
    PrintBytes("bias's gradient", 4 * bytes, Seconds(5, [&] {
                 device_.WeightGradient({.rows = rows_,
                                         .in = 0,
                                         .out = 4 * hidden,
                                         .d_output = u.data(),
                                         .d_bias = d_weight.data()});
               }));
  }

  /// Tokens that all differ.
  void Embeddings(std::int64_t hidden, std::int64_t vocab) {
    const double bytes = static_cast<double>(rows_ * hidden) * sizeof(T);
    const std::int64_t sequence = std::min<std::int64_t>(1024, rows_);
    const Buffer<T> weight = Numbers<T>(vocab * hidden), positions = Numbers<T>(sequence * hidden);
    Buffer<T> output = Numbers<T>(rows_ * hidden);
    Buffer<float> d_weight = Numbers<float>(vocab * hidden),
                  d_positions = Numbers<float>(sequence * hidden);
    std::vector<std::int32_t> some(static_cast<std::size_t>(rows_));
    for (std::size_t i = 0; i < some.size(); ++i)
      some[i] = static_cast<std::int32_t>(i * 7919 % static_cast<std::size_t>(vocab));
    Buffer<std::int32_t> tokens(device_, some.size());
    tokens.CopyFromHost(some);
    PrintBytes("Embedding", 2 * bytes, Seconds(5, [&] {
                 device_.Embedding({.batch = rows_ / sequence,
                                    .sequence = sequence,
                                    .columns = hidden,
                                    .tokens = tokens.data(),
                                    .token_weight = weight.data(),
                                    .position_weight = positions.data(),
                                    .output = output.data()});
               }));
    const double both = 2 * static_cast<double>(rows_ * hidden) * sizeof(float);
    PrintBytes("EmbeddingBackward", bytes + both, Seconds(5, [&] {
                 device_.EmbeddingBackward({.batch = rows_ / sequence,
                                            .sequence = sequence,
                                            .columns = hidden,
                                            .tokens = tokens.data(),
                                            .d_output = output.data(),
                                            .d_token_weight = d_weight.data(),
                                            .d_position_weight = d_positions.data()});
               }));
  }

  void Layer() {
    constexpr std::int64_t kHidden = 768, kHeads = 12;
    Between(kHidden);
    Embeddings(kHidden, 50257);
    Products("768 to 2304", kHidden, 3 * kHidden);
    Products("768 to 3072", kHidden, 4 * kHidden);
    Products("3072 to 768", 4 * kHidden, kHidden);
    Attention(kHeads, kHidden / kHeads);
    Attention(kHeads / 2, 2 * kHidden / kHeads);
    HeadLoss(kHidden, 50257);
    HeadLoss(kHidden, 50304);
  }

  kernels::Device<T>& device_;
  const std::int64_t count_, rows_;
  std::vector<float> pattern_;
  Buffer<float> one_{device_, 1};
  double copy_rate_ = 0;  // of the first pass
};

template <class T>
int Run(const adaptive_train::Device& which, std::int64_t count, std::int64_t rows) {
  const auto device = kernels::MakeDevice<T>(which);
  if (!device) {
    fmt::print(stderr, "device_bench: {}\n", device.error().message);
    return static_cast<int>(device.error().exit_code);
  }
  fmt::print("{}\n", (*device)->Description());
  Bench<T>(**device, count, rows).Run();
  return 0;
}

int Main(int argc, char** argv) {
  if (argc < 3 || argc > 5) {
    fmt::print(stderr, "usage: device_bench cpu|GPU-UUID fp32|bf16|fp16 [ELEMENTS [ROWS]]\n");
    return 2;
  }
  adaptive_train::Device device;
  const std::string name = argv[1], precision = argv[2];
  device.kind = name == "cpu" ? "cpu" : "cuda";
  device.uuid = name;
  device.threads = static_cast<int>(std::thread::hardware_concurrency());
  const std::int64_t count = argc > 3 ? std::stoll(argv[3]) : 100'000'000;
  const std::int64_t rows = argc > 4 ? std::stoll(argv[4]) : 8192;
  if (precision == "bf16") return Run<kernels::BFloat16>(device, count, rows);
  if (precision == "fp16") return Run<kernels::Float16>(device, count, rows);
  return Run<float>(device, count, rows);
}

}  // namespace
}  // namespace adaptive_train

int main(int argc, char** argv) { return adaptive_train::Main(argc, argv); }
