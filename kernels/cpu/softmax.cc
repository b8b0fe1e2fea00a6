// Reads each row twice: for its largest score, then for the exponentials and their sum.
#include "kernels/cpu/softmax.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/softmax.cc"
#include <hwy/foreach_target.h>

#include "kernels/cpu/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace adaptive_train::kernels::cpu {
namespace HWY_NAMESPACE {
namespace {

/// May miss NaN; the exponentials find it. The result is at least the lowest finite number, so that
/// -infinity can be subtracted from it.
float LargestOfRow(std::int64_t count, const float* scores) {
  const Floats lowest = Set(std::numeric_limits<float>::lowest());
  Floats largest = lowest;
  ForVectors(0, count, [&](std::int64_t i, auto part) HWY_ATTR {
    const Floats values = Load(scores + i, part);
    if constexpr (std::is_same_v<decltype(part), Whole>) {
      largest = hn::Max(largest, values);
    } else {
      const auto kept = hn::FirstN(FloatTag(), part.count);
      largest = hn::Max(largest, hn::IfThenElse(kept, values, lowest));
    }
  });
  return LargestOf(largest);
}

float ExpOf(float x) { return hn::GetLane(Exp(Set(x))); }

void Clear(std::int64_t begin, std::int64_t end, float* values) {
  ForVectors(begin, end,
             [=](std::int64_t i, auto part) HWY_ATTR { Store(Zero(), values + i, part); });
}

void Exponentials(const ScoreRows& x, RunningSoftmax* running, float* factors) {
  for (std::int64_t row = 0; row < x.rows; ++row) {
    float* scores = x.scores + row * x.stride;
    const std::int64_t visible = x.visible.Of(row);
    RunningSoftmax& softmax = running[row];
    const float of_row = x.scale * LargestOfRow(visible, scores);
    // A comparison with NaN is false, so NaN persists.
    const float largest = of_row > softmax.largest ? of_row : softmax.largest;
    const Floats scale = Set(x.scale), shift = Set(largest);
    Floats sum = Zero();
    ForVectors(0, visible, [&](std::int64_t i, auto part) HWY_ATTR {
      const Floats power = Exp(hn::MulSub(Load(scores + i, part), scale, shift));
      Store(power, scores + i, part);
      sum = hn::Add(sum, Keep(power, part));
    });
    Clear(visible, x.width, scores);
    factors[row] = ExpOf(softmax.largest - largest);
    softmax = {largest, softmax.denominator * factors[row] + SumOf(sum)};
  }
}

void Gradients(const ScoreRows& x, const float* log_sum_exp, const float* mean_d_p,
               float* d_scores) {
  for (std::int64_t row = 0; row < x.rows; ++row) {
    float* scores = x.scores + row * x.stride;
    float* d_row = d_scores + row * x.stride;
    const std::int64_t visible = x.visible.Of(row);
    const Floats scale = Set(x.scale), shift = Set(log_sum_exp[row]), mean = Set(mean_d_p[row]);
    ForVectors(0, visible, [=](std::int64_t i, auto part) HWY_ATTR {
      const Floats probability = Exp(hn::MulSub(Load(scores + i, part), scale, shift));
      Store(probability, scores + i, part);
      Store(hn::Mul(probability, hn::Sub(Load(d_row + i, part), mean)), d_row + i, part);
    });
    Clear(visible, x.width, scores);
    Clear(visible, x.width, d_row);
  }
}

void Scale(std::int64_t rows, std::int64_t columns, const float* factors, float* values,
           std::int64_t stride) {
  for (std::int64_t row = 0; row < rows; ++row) {
    float* of_row = values + row * stride;
    const Floats factor = Set(factors[row]);
    ForVectors(0, columns, [=](std::int64_t i, auto part) HWY_ATTR {
      Store(hn::Mul(factor, Load(of_row + i, part)), of_row + i, part);
    });
  }
}

void Dots(std::int64_t rows, std::int64_t columns, const float* a, const float* b,
          std::int64_t stride, float* dots) {
  for (std::int64_t row = 0; row < rows; ++row) {
    const float *row_a = a + row * stride, *row_b = b + row * stride;
    Floats sum = Zero();
    ForVectors(0, columns, [&](std::int64_t i, auto part) HWY_ATTR {
      sum = hn::MulAdd(Load(row_a + i, part), Load(row_b + i, part), sum);
    });
    dots[row] = SumOf(sum);
  }
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace adaptive_train::kernels::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace adaptive_train::kernels::cpu {
namespace {
HWY_EXPORT(Exponentials);
HWY_EXPORT(Gradients);
HWY_EXPORT(Scale);
HWY_EXPORT(Dots);
}  // namespace

void ExponentialRows(const ScoreRows& x, RunningSoftmax* running, float* factors) {
  HWY_DYNAMIC_DISPATCH(Exponentials)(x, running, factors);
}

void SoftmaxGradientRows(const ScoreRows& x, const float* log_sum_exp, const float* mean_d_p,
                         float* d_scores) {
  HWY_DYNAMIC_DISPATCH(Gradients)(x, log_sum_exp, mean_d_p, d_scores);
}

void FinishSoftmax(std::int64_t rows, const RunningSoftmax* running, float* reciprocals,
                   float* log_sum_exp) {
  for (std::int64_t row = 0; row < rows; ++row) {
    reciprocals[row] = 1 / running[row].denominator;
    log_sum_exp[row] = running[row].LogSumExp();
  }
}

void ScaleRows(std::int64_t rows, std::int64_t columns, const float* factors, float* values,
               std::int64_t stride) {
  HWY_DYNAMIC_DISPATCH(Scale)(rows, columns, factors, values, stride);
}

void DotRows(std::int64_t rows, std::int64_t columns, const float* a, const float* b,
             std::int64_t stride, float* dots) {
  HWY_DYNAMIC_DISPATCH(Dots)(rows, columns, a, b, stride, dots);
}

}  // namespace adaptive_train::kernels::cpu
#endif
