// Rows of scores to exponentials, and gradients back to scores, for attention and the head.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>

namespace adaptive_train::kernels::cpu {

/// A softmax whose scores come block by block (Milakov, Gimelshein 2018): the largest score so far,
/// and the sum of all exponentials relative to it.
struct RunningSoftmax {
  float largest = std::numeric_limits<float>::lowest();
  float denominator = 0;

  float LogSumExp() const { return largest + std::log(denominator); }
};

/// The number of visible entries per row: `first` in row 0 and `more_per_row` more in each row
/// after it, clamped to [0, columns].
struct VisibleEntries {
  std::int64_t first;
  std::int64_t more_per_row;
  std::int64_t columns;

  std::int64_t Of(std::int64_t row) const {
    return std::clamp<std::int64_t>(first + row * more_per_row, 0, columns);
  }
};

/// Rows that are `stride` floats apart, of which the first `width` entries are written. width is a
/// multiple of kPanelMultiple (kernels/cpu/product.h); no row has more visible entries.
struct ScoreRows {
  std::int64_t rows;
  std::int64_t width;
  std::int64_t stride;
  VisibleEntries visible;
  float* scores;
  float scale = 1;  // a positive factor of every score
};

/// Adds each row to its running softmax: visible scores s become exp(scale s - largest), the others
/// 0. Multiply what was computed with the previous largest score by factors[row].
void ExponentialRows(const ScoreRows& x, RunningSoftmax* running, float* factors);

/// Visible scores s become probabilities p = exp(scale s - log_sum_exp[row]). Visible d_scores hold
/// d_p on entry and become p (d_p - mean_d_p[row]), the gradient of scale s. All others become 0.
void SoftmaxGradientRows(const ScoreRows& x, const float* log_sum_exp, const float* mean_d_p,
                         float* d_scores);

/// For each row that has seen all its scores: 1 / the sum of its exponentials, and LogSumExp().
void FinishSoftmax(std::int64_t rows, const RunningSoftmax* running, float* reciprocals,
                   float* log_sum_exp);

/// values[row, i] *= factors[row], rows `stride` apart.
void ScaleRows(std::int64_t rows, std::int64_t columns, const float* factors, float* values,
               std::int64_t stride);

/// dots[row] = a[row] . b[row], rows `stride` apart.
void DotRows(std::int64_t rows, std::int64_t columns, const float* a, const float* b,
             std::int64_t stride, float* dots);

}  // namespace adaptive_train::kernels::cpu
