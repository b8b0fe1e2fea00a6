// A CPU device that keeps count of what each operation of a GPT-2's training step takes, and of what
// it cannot do without.
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "kernels/cpu/cpu_device.h"
#include "tests/bench/bare_products.h"

namespace adaptive_train {

/// Of all calls of an operation.
struct OperationCount {
  double seconds = 0;
  std::int64_t calls = 0;
  std::map<ProductShape, double> products;         // how often each is made
  std::map<std::int64_t, std::int64_t> movements;  // bytes read and written besides: how often
};

template <class T>
class TimedDevice final : public kernels::cpu::CpuDevice<T> {
  using Base = kernels::cpu::CpuDevice<T>;

 public:
  using Base::Base;

  /// By name. What comes before the call is forgotten.
  void Forget() { counts_.clear(); }
  const std::map<std::string, OperationCount>& Counts() const { return counts_; }

  void Matmul(const kernels::MatmulArguments<T>& x) override {
    const std::int64_t whole = x.rows * x.columns * kScalar;
    Time(x.transpose_b ? "linear, gradient of input" : "linear",
         {{{x.rows, x.columns, x.inner, x.transpose_a, x.transpose_b}, 1}},
         whole * (x.residual != nullptr) + whole * (x.gelu != kernels::GeluForm::kNone),
         [&] { Base::Matmul(x); });
  }
  void WeightGradient(const kernels::WeightGradientArguments<T>& x) override {
    Time("linear, gradient of weight", {{{x.in, x.out, x.rows, true, false}, 1}},
         x.in * x.out * kSum, [&] { Base::WeightGradient(x); });
  }
  void Attention(const kernels::AttentionArguments<T>& x) override {
    Time("attention", ProductsOf(x.shape, 1, 1), 0, [&] { Base::Attention(x); });
  }
  /// Scores again and the gradients of probabilities; those of values, queries and keys.
  void AttentionBackward(const kernels::AttentionBackwardArguments<T>& x) override {
    Time("attention, backward", ProductsOf(x.shape, 2, 3), 0, [&] { Base::AttentionBackward(x); });
  }
  void HeadLoss(const kernels::HeadLossArguments<T>& x) override {
    Time("head, loss and gradients",
         {{{x.rows, x.vocab, x.columns, false, true}, 1},
          {{x.rows, x.columns, x.vocab, false, false}, 1},
          {{x.vocab, x.columns, x.rows, true, false}, 1}},
         x.vocab * x.columns * kSum, [&] { Base::HeadLoss(x); });
  }
  void LayerNorm(const kernels::NormArguments<T>& x) override {
    Time("norm", {}, 2 * x.rows * x.columns * kScalar, [&] { Base::LayerNorm(x); });
  }
  void LayerNormBackward(const kernels::NormBackwardArguments<T>& x) override {
    Time("norm, backward", {}, (x.accumulate ? 4 : 3) * x.rows * x.columns * kScalar,
         [&] { Base::LayerNormBackward(x); });
  }
  void Embedding(const kernels::EmbeddingArguments<T>& x) override {
    Time("embedding", {}, 2 * x.batch * x.sequence * x.columns * kScalar,
         [&] { Base::Embedding(x); });
  }
  void EmbeddingBackward(const kernels::EmbeddingBackwardArguments<T>& x) override {
    Time("embedding, backward", {}, x.batch * x.sequence * x.columns * (kScalar + 2 * kSum),
         [&] { Base::EmbeddingBackward(x); });
  }
  void AdamW(const kernels::AdamWArguments<T>& x) override {
    Time("AdamW", {}, x.count * (7 * kSum + (x.weights != nullptr ? kScalar : 0)),
         [&] { Base::AdamW(x); });
  }
  double SquaredNorm(std::int64_t count, const kernels::Accumulator<T>* values) override {
    double norm = 0;
    Time("norm of gradients", {}, count * kSum, [&] { norm = Base::SquaredNorm(count, values); });
    return norm;
  }
  void Clear(void* memory, std::size_t bytes) override {
    Time("clearing", {}, static_cast<std::int64_t>(bytes), [&] { Base::Clear(memory, bytes); });
  }

 private:
  using Products = std::vector<std::pair<ProductShape, double>>;
  static constexpr std::int64_t kScalar = sizeof(T), kSum = sizeof(kernels::Accumulator<T>);

  /// Half of them where keys that no query sees are left out.
  static Products ProductsOf(const kernels::AttentionShape& shape, int of_keys, int of_values) {
    const double heads = static_cast<double>(shape.batch * shape.heads) / (shape.causal ? 2 : 1);
    return {{{shape.sequence, shape.sequence, shape.head_size, false, true}, of_keys * heads},
            {{shape.sequence, shape.head_size, shape.sequence, false, false}, of_values * heads}};
  }

  template <class Work>
  void Time(const char* name, const Products& products, std::int64_t bytes, const Work& work) {
    const auto start = std::chrono::steady_clock::now();
    work();
    OperationCount& count = counts_[name];
    count.seconds +=
        std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    ++count.calls;
    for (const auto& [shape, times] : products) count.products[shape] += times;
    if (bytes > 0) ++count.movements[bytes];
  }

  std::map<std::string, OperationCount> counts_;
};

}  // namespace adaptive_train
