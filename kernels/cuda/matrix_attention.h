// Attention of 16-bit numbers on the matrix units.
#pragma once

#include "kernels/attention.h"
#include "kernels/cuda/stream.h"

namespace adaptive_train::kernels::cuda {

/// Whether the GPU has the units, and the kernels tiles for such heads.
bool FitsMatrixUnits(const Stream& stream, const AttentionShape& shape);

/// The contract's operations, for shapes that fit. Probabilities and the gradients of scores are
/// rounded to T before they are multiplied; sums are in float32.
template <class T>
void MatrixAttention(const Stream& stream, const AttentionArguments<T>& x);
/// means[query] = d_output . output, for each sample and head.
template <class T>
void MatrixAttentionBackward(const Stream& stream, const AttentionBackwardArguments<T>& x,
                             const float* means);

}  // namespace adaptive_train::kernels::cuda
