// Every operation as a case: inputs, a run on any device, and the objective whose gradients it
// computes.
#pragma once

#include <array>
#include <cmath>
#include <cstdint>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "core/counter_random.h"
#include "kernels/device.h"

namespace adaptive_train::kernels {

using Array = std::vector<double>;
using Arrays = std::vector<Array>;

/// An input of a case and the output that holds the objective's gradient with respect to it.
struct GradientPair {
  std::size_t input;
  std::size_t gradient;
};

inline constexpr double kUnread = std::numeric_limits<double>::quiet_NaN();

/// Normal numbers that float holds exactly, so that every device starts from the same.
inline Array RandomArray(std::int64_t count, std::uint32_t which) {
  const CounterRandom random(7, RandomPurpose::kInitialization);
  Array values(static_cast<std::size_t>(count));
  for (std::size_t i = 0; i < values.size(); ++i)
    values[i] = random.Normal({.step = which, .element = i});
  return values;
}

inline std::vector<std::int32_t> RandomTokens(std::int64_t count, std::int64_t vocab) {
  const CounterRandom random(8, RandomPurpose::kInitialization);
  std::vector<std::int32_t> tokens(static_cast<std::size_t>(count));
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    tokens[i] =
        static_cast<std::int32_t>(random.Bits({.element = i}) % static_cast<std::uint32_t>(vocab));
  }
  return tokens;
}

template <class T>
Buffer<T> ToDevice(Device<T>& device, const Array& values) {
  const std::vector<T> converted(values.begin(), values.end());
  Buffer<T> buffer(device, converted.size());
  buffer.CopyFromHost(converted);
  return buffer;
}

template <class T>
Buffer<std::int32_t> TokensToDevice(Device<T>& device, const std::vector<std::int32_t>& tokens) {
  Buffer<std::int32_t> buffer(device, tokens.size());
  buffer.CopyFromHost(tokens);
  return buffer;
}

template <class T>
Array ToHost(const Buffer<T>& buffer) {
  std::vector<T> values(buffer.size());
  buffer.CopyToHost(values);
  return {values.begin(), values.end()};
}

inline double Dot(const Array& a, const Array& b) {
  double sum = 0;
  for (std::size_t i = 0; i < a.size(); ++i) sum += a[i] * b[i];
  return sum;
}

struct MatmulCase {
  std::int64_t rows, columns, inner;
  bool transpose_a = false, transpose_b = false, has_bias = false, accumulate = false;

  Arrays Inputs() const {
    return {RandomArray(rows * inner, 1), RandomArray(inner * columns, 2), RandomArray(columns, 3),
            accumulate ? RandomArray(rows * columns, 4)
                       : Array(static_cast<std::size_t>(rows * columns), kUnread)};
  }
  template <class T>
  Arrays Run(Device<T>& device, const Arrays& in) const {
    const Buffer<T> a = ToDevice(device, in[0]), b = ToDevice(device, in[1]),
                    bias = ToDevice(device, in[2]);
    Buffer<T> c = ToDevice(device, in[3]);
    device.Matmul({.rows = rows,
                   .columns = columns,
                   .inner = inner,
                   .a = a.data(),
                   .transpose_a = transpose_a,
                   .b = b.data(),
                   .transpose_b = transpose_b,
                   .bias = has_bias ? bias.data() : nullptr,
                   .c = c.data(),
                   .accumulate = accumulate});
    return {ToHost(c)};
  }
};

/// Inputs: d_output, d_bias before. The objective of which it is the gradient: d_output . (bias in
/// every row).
struct BiasBackwardCase {
  std::int64_t rows, columns;

  Arrays Inputs() const { return {RandomArray(rows * columns, 1), RandomArray(columns, 2)}; }
  template <class T>
  Arrays Run(Device<T>& device, const Arrays& in) const {
    const Buffer<T> d_output = ToDevice(device, in[0]);
    Buffer<T> d_bias = ToDevice(device, in[1]);
    device.BiasBackward(
        {.rows = rows, .columns = columns, .d_output = d_output.data(), .d_bias = d_bias.data()});
    return {ToHost(d_bias)};
  }
};

/// Inputs: input, weight, bias, d_output, then the three gradients before.
struct LayerNormCase {
  std::int64_t rows, columns;

  static std::vector<GradientPair> Gradients() { return {{0, 3}, {1, 4}, {2, 5}}; }
  static std::vector<std::size_t> GradientsBefore() { return {4, 5, 6}; }
  static double Objective(const Arrays& in, const Arrays& out) { return Dot(in[3], out[0]); }
  Arrays Inputs() const {
    return {RandomArray(rows * columns, 1), RandomArray(columns, 2),        RandomArray(columns, 3),
            RandomArray(rows * columns, 4), RandomArray(rows * columns, 5), RandomArray(columns, 6),
            RandomArray(columns, 7)};
  }
  template <class T>
  Arrays Run(Device<T>& device, const Arrays& in) const {
    const Buffer<T> input = ToDevice(device, in[0]), weight = ToDevice(device, in[1]),
                    bias = ToDevice(device, in[2]);
    const Buffer<T> d_output = ToDevice(device, in[3]);
    Buffer<T> d_input = ToDevice(device, in[4]), d_weight = ToDevice(device, in[5]),
              d_bias = ToDevice(device, in[6]);
    Buffer<T> output(device, input.size()), mean(device, static_cast<std::size_t>(rows)),
        reciprocal_std(device, static_cast<std::size_t>(rows));
    device.LayerNorm({.rows = rows,
                      .columns = columns,
                      .input = input.data(),
                      .weight = weight.data(),
                      .bias = bias.data(),
                      .output = output.data(),
                      .mean = mean.data(),
                      .reciprocal_std = reciprocal_std.data()});
    device.LayerNormBackward({.rows = rows,
                              .columns = columns,
                              .d_output = d_output.data(),
                              .input = input.data(),
                              .weight = weight.data(),
                              .mean = mean.data(),
                              .reciprocal_std = reciprocal_std.data(),
                              .d_input = d_input.data(),
                              .d_weight = d_weight.data(),
                              .d_bias = d_bias.data()});
    return {ToHost(output),  ToHost(mean),     ToHost(reciprocal_std),
            ToHost(d_input), ToHost(d_weight), ToHost(d_bias)};
  }
};

/// Inputs: input, d_output. Backward runs in place.
struct GeluCase {
  std::int64_t count;
  double spread = 2;

  static std::vector<GradientPair> Gradients() { return {{0, 1}}; }
  static std::vector<std::size_t> GradientsBefore() { return {}; }
  static double Objective(const Arrays& in, const Arrays& out) { return Dot(in[1], out[0]); }
  Arrays Inputs() const {
    Array input = RandomArray(count, 1);
    for (double& value : input) value = static_cast<float>(value * spread);
    return {std::move(input), RandomArray(count, 2)};
  }
  template <class T>
  Arrays Run(Device<T>& device, const Arrays& in) const {
    const Buffer<T> input = ToDevice(device, in[0]);
    Buffer<T> d_values = ToDevice(device, in[1]), output(device, input.size());
    device.Gelu({.count = count, .input = input.data(), .output = output.data()});
    device.GeluBackward({.count = count,
                         .input = input.data(),
                         .d_output = d_values.data(),
                         .d_input = d_values.data()});
    return {ToHost(output), ToHost(d_values)};
  }
};

/// Inputs: qkv, d_output.
struct AttentionCase {
  std::int64_t batch, sequence, heads, head_size;

  static std::vector<GradientPair> Gradients() { return {{0, 2}}; }
  static std::vector<std::size_t> GradientsBefore() { return {}; }
  static double Objective(const Arrays& in, const Arrays& out) { return Dot(in[1], out[0]); }
  Arrays Inputs() const {
    const std::int64_t values = batch * sequence * heads * head_size;
    return {RandomArray(3 * values, 1), RandomArray(values, 2)};
  }
  template <class T>
  Arrays Run(Device<T>& device, const Arrays& in) const {
    const Buffer<T> qkv = ToDevice(device, in[0]), d_output = ToDevice(device, in[1]);
    Buffer<T> output = ToDevice(device, Array(d_output.size(), kUnread));
    Buffer<T> d_qkv = ToDevice(device, Array(qkv.size(), kUnread));
    Buffer<T> log_sum_exp(device, static_cast<std::size_t>(batch * heads * sequence));
    device.Attention({.batch = batch,
                      .sequence = sequence,
                      .heads = heads,
                      .head_size = head_size,
                      .qkv = qkv.data(),
                      .output = output.data(),
                      .log_sum_exp = log_sum_exp.data()});
    device.AttentionBackward({.batch = batch,
                              .sequence = sequence,
                              .heads = heads,
                              .head_size = head_size,
                              .qkv = qkv.data(),
                              .output = output.data(),
                              .log_sum_exp = log_sum_exp.data(),
                              .d_output = d_output.data(),
                              .d_qkv = d_qkv.data()});
    return {ToHost(output), ToHost(log_sum_exp), ToHost(d_qkv)};
  }
};

/// Inputs: token weight, position weight, d_output, then the two gradients before. Few words, so
/// that tokens repeat.
struct EmbeddingCase {
  std::int64_t batch, sequence, columns, vocab = 5;

  static std::vector<GradientPair> Gradients() { return {{0, 1}, {1, 2}}; }
  static std::vector<std::size_t> GradientsBefore() { return {3, 4}; }
  static double Objective(const Arrays& in, const Arrays& out) { return Dot(in[2], out[0]); }
  Arrays Inputs() const {
    return {RandomArray(vocab * columns, 1), RandomArray(sequence * columns, 2),
            RandomArray(batch * sequence * columns, 3), RandomArray(vocab * columns, 4),
            RandomArray(sequence * columns, 5)};
  }
  template <class T>
  Arrays Run(Device<T>& device, const Arrays& in) const {
    const Buffer<T> token_weight = ToDevice(device, in[0]),
                    position_weight = ToDevice(device, in[1]);
    const Buffer<T> d_output = ToDevice(device, in[2]);
    Buffer<T> d_token_weight = ToDevice(device, in[3]), d_position_weight = ToDevice(device, in[4]);
    Buffer<T> output(device, d_output.size());
    const Buffer<std::int32_t> tokens =
        TokensToDevice(device, RandomTokens(batch * sequence, vocab));
    device.Embedding({.batch = batch,
                      .sequence = sequence,
                      .columns = columns,
                      .tokens = tokens.data(),
                      .token_weight = token_weight.data(),
                      .position_weight = position_weight.data(),
                      .output = output.data()});
    device.EmbeddingBackward({.batch = batch,
                              .sequence = sequence,
                              .columns = columns,
                              .tokens = tokens.data(),
                              .d_output = d_output.data(),
                              .d_token_weight = d_token_weight.data(),
                              .d_position_weight = d_position_weight.data()});
    return {ToHost(output), ToHost(d_token_weight), ToHost(d_position_weight)};
  }
};

/// Inputs: logits. Outputs: losses, losses without gradients, d_logits (in place).
struct CrossEntropyCase {
  static constexpr double kScale = 0.25;
  std::int64_t rows, classes;
  double spread = 3;

  static std::vector<GradientPair> Gradients() { return {{0, 2}}; }
  static std::vector<std::size_t> GradientsBefore() { return {}; }
  static double Objective(const Arrays&, const Arrays& out) {
    return kScale * Dot(out[1], Array(out[1].size(), 1.0));
  }
  Arrays Inputs() const {
    Array logits = RandomArray(rows * classes, 1);
    for (double& value : logits) value = static_cast<float>(value * spread);
    return {std::move(logits)};
  }
  template <class T>
  Arrays Run(Device<T>& device, const Arrays& in) const {
    Buffer<T> logits = ToDevice(device, in[0]);
    Buffer<T> losses(device, static_cast<std::size_t>(rows)),
        losses_alone(device, static_cast<std::size_t>(rows));
    const Buffer<std::int32_t> targets = TokensToDevice(device, RandomTokens(rows, classes));
    CrossEntropyArguments<T> x{.rows = rows,
                               .classes = classes,
                               .logits = logits.data(),
                               .targets = targets.data(),
                               .losses = losses_alone.data()};
    device.CrossEntropy(x);
    x.losses = losses.data();
    x.gradient_scale = kScale;
    x.d_logits = logits.data();
    device.CrossEntropy(x);
    return {ToHost(losses), ToHost(losses_alone), ToHost(logits)};
  }
};

/// Inputs: a, b. Outputs: a + b in place of a, times 0.3.
struct ElementwiseCase {
  std::int64_t count;

  Arrays Inputs() const { return {RandomArray(count, 1), RandomArray(count, 2)}; }
  template <class T>
  Arrays Run(Device<T>& device, const Arrays& in) const {
    Buffer<T> a = ToDevice(device, in[0]);
    const Buffer<T> b = ToDevice(device, in[1]);
    device.Add({.count = count, .a = a.data(), .b = b.data(), .output = a.data()});
    Array sum = ToHost(a);
    device.Scale({.count = count, .factor = 0.3, .values = a.data()});
    return {std::move(sum), ToHost(a)};
  }
};

/// Inputs: parameters, gradients. Outputs: parameters and both moments after three steps.
struct AdamWCase {
  std::int64_t count;

  Arrays Inputs() const { return {RandomArray(count, 1), RandomArray(count, 2)}; }
  template <class T>
  Arrays Run(Device<T>& device, const Arrays& in) const {
    Buffer<T> parameters = ToDevice(device, in[0]);
    const Buffer<T> gradients = ToDevice(device, in[1]);
    Buffer<T> first(device, parameters.size()), second(device, parameters.size());
    first.Clear();
    second.Clear();
    for (std::int64_t step = 1; step <= 3; ++step) {
      device.AdamW({.count = count,
                    .parameters = parameters.data(),
                    .gradients = gradients.data(),
                    .first_moments = first.data(),
                    .second_moments = second.data(),
                    .step = step,
                    .lr = 0.1,
                    .weight_decay = 0.2,
                    .gradient_scale = 0.5});
    }
    return {ToHost(parameters), ToHost(first), ToHost(second)};
  }
};

/// Outputs: sum and squared norm.
struct ReductionCase {
  std::int64_t count;

  Arrays Inputs() const { return {RandomArray(count, 1)}; }
  template <class T>
  Arrays Run(Device<T>& device, const Arrays& in) const {
    const Buffer<T> values = ToDevice(device, in[0]);
    return {{device.Sum(count, values.data()), device.SquaredNorm(count, values.data())}};
  }
};

/// Calls visit(operation, case) for every case of every operation: odd shapes, 0 and 1 among them,
/// and some that are large enough to be cut into pieces.
template <class Visit>
void ForEachCase(const Visit& visit) {
  for (const auto& [rows, columns, inner] : {std::array<std::int64_t, 3>{0, 3, 2},
                                             {3, 0, 2},
                                             {3, 2, 0},
                                             {1, 1, 1},
                                             {7, 5, 3},
                                             {130, 9, 17},
                                             {65, 300, 33},
                                             {1100, 40, 12}}) {
    for (int flags = 0; flags < 16; ++flags) {
      visit("matmul", MatmulCase{rows, columns, inner, (flags & 1) != 0, (flags & 2) != 0,
                                 (flags & 4) != 0, (flags & 8) != 0});
    }
  }
  for (const auto& [rows, columns] :
       {std::array<std::int64_t, 2>{0, 3}, {3, 0}, {1, 1}, {5, 7}, {33, 130}, {70, 64}}) {
    visit("bias_backward", BiasBackwardCase{rows, columns});
    if (columns > 0) visit("layer_norm", LayerNormCase{rows, columns});
  }
  for (const std::int64_t count : {0, 1, 17, 40000}) {
    visit("gelu", GeluCase{count});
    visit("gelu", GeluCase{count, 30});
    visit("elementwise", ElementwiseCase{count});
    visit("adamw", AdamWCase{count});
    visit("reduction", ReductionCase{count});
  }
  visit("attention", AttentionCase{0, 3, 2, 4});
  visit("attention", AttentionCase{2, 0, 2, 4});
  visit("attention", AttentionCase{1, 1, 1, 1});
  visit("attention", AttentionCase{2, 5, 3, 3});
  visit("attention", AttentionCase{1, 64, 2, 8});
  visit("attention", AttentionCase{2, 131, 3, 16});
  for (const auto& [batch, sequence, columns] :
       {std::array<std::int64_t, 3>{0, 3, 4}, {1, 1, 1}, {3, 4, 5}, {5, 31, 130}}) {
    visit("embedding", EmbeddingCase{batch, sequence, columns});
  }
  for (const auto& [rows, classes] :
       {std::array<std::int64_t, 2>{0, 3}, {1, 1}, {1, 2}, {19, 7}, {40, 257}}) {
    visit("cross_entropy", CrossEntropyCase{rows, classes});
    visit("cross_entropy", CrossEntropyCase{rows, classes, 60});
  }
}

}  // namespace adaptive_train::kernels
