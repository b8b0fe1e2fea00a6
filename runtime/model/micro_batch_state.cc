// The size of a micro-batch's state.
#include "runtime/model/micro_batch_state.h"

#include "runtime/model/scalars.h"

namespace adaptive_train {
namespace {

std::size_t Elements(std::int64_t rows, std::int64_t columns) {
  return static_cast<std::size_t>(rows * columns);
}

}  // namespace

template <class T>
NormStatistics<T>::NormStatistics(const ModelDims& dims, std::int64_t rows,
                                  kernels::DeviceMemory& memory)
    : mean(memory, Architecture::Of(dims.kind).rms_norm ? 0 : Elements(rows, 1)),
      reciprocal_std(memory, Elements(rows, 1)) {}

template <class T>
KeptActivations<T>::KeptActivations(const ModelDims& dims, const StageOptions& options,
                                    kernels::DeviceMemory& memory)
    : qkv(memory, Elements(options.Rows(dims), dims.QkvColumns())),
      attention(memory, Elements(options.Rows(dims), dims.AttentionColumns())),
      log_sum_exp(memory, Elements(options.Rows(dims), dims.heads)),
      mid(memory, Elements(options.OwnRows(dims), dims.hidden)),
      fc(memory, Elements(options.Rows(dims), dims.FfnColumns())),
      sum(memory, Architecture::Of(dims.kind).post_norm ? mid.size() : 0) {}

template <class T>
std::size_t KeptActivations<T>::bytes() const {
  return qkv.bytes() + attention.bytes() + log_sum_exp.bytes() + mid.bytes() + fc.bytes() +
         sum.bytes();
}

template <class T>
CheapActivations<T>::CheapActivations(const ModelDims& dims, const StageOptions& options,
                                      kernels::DeviceMemory& memory)
    : norm_1(memory, Elements(options.OwnRows(dims), dims.hidden)),
      norm_2(memory, Architecture::Of(dims.kind).post_norm ? 0 : norm_1.size()),
      activated(memory, Elements(options.Rows(dims), dims.Ffn())) {}

template <class T>
std::size_t CheapActivations<T>::bytes() const {
  return norm_1.bytes() + norm_2.bytes() + activated.bytes();
}

template <class T>
BlockState<T>::BlockState(const ModelDims& dims, const StageOptions& options,
                          kernels::DeviceMemory& memory)
    : ln_1(dims, options.OwnRows(dims), memory),
      ln_2(dims, options.OwnRows(dims), memory),
      output(memory, Elements(options.OwnRows(dims), dims.hidden)) {
  if (options.recompute != Recompute::kFull) kept.emplace(dims, options, memory);
  if (options.recompute == Recompute::kNone) cheap.emplace(dims, options, memory);
}

template <class T>
std::size_t BlockState<T>::bytes() const {
  return ln_1.bytes() + ln_2.bytes() + output.bytes() + (kept ? kept->bytes() : 0) +
         (cheap ? cheap->bytes() : 0);
}

template <class T>
EmbeddingState<T>::EmbeddingState(const ModelDims& dims, const StageOptions& options,
                                  kernels::DeviceMemory& memory)
    : tokens(memory, Elements(options.Rows(dims), 1)),
      output(memory, Elements(options.OwnRows(dims), dims.hidden)) {
  if (dims.kind != ModelKind::kBert) return;
  norm.emplace(dims, options.Rows(dims), memory);
  sum = {memory, Elements(options.Rows(dims), dims.hidden)};
}

template <class T>
std::size_t EmbeddingState<T>::bytes() const {
  return tokens.bytes() + sum.bytes() + output.bytes() + (norm ? norm->bytes() : 0);
}

template <class T>
HeadState<T>::HeadState(const ModelDims& dims, const StageOptions& options,
                        kernels::DeviceMemory& memory)
    : norm(dims, options.Rows(dims), memory),
      d_normal(memory, Elements(options.Rows(dims), dims.hidden)) {
  if (dims.kind != ModelKind::kBert) return;
  dense_output = {memory, d_normal.size()};
  activated = {memory, d_normal.size()};
}

template <class T>
std::size_t HeadState<T>::bytes() const {
  return norm.bytes() + dense_output.bytes() + activated.bytes() + d_normal.bytes();
}

template <class T>
MicroBatchState<T>::MicroBatchState(const ModelDims& dims, const StageSlice& slice,
                                    const StageOptions& options, kernels::DeviceMemory& memory) {
  if (slice.has_embedding) {
    embedding.emplace(dims, options, memory);
  } else {
    input = {memory, Elements(options.OwnRows(dims), dims.hidden)};
  }
  blocks.reserve(static_cast<std::size_t>(slice.last_block - slice.first_block));
  for (std::int64_t block = slice.first_block; block < slice.last_block; ++block)
    blocks.emplace_back(dims, options, memory);
  if (slice.has_head) head.emplace(dims, options, memory);
}

template <class T>
std::size_t MicroBatchState<T>::bytes() const {
  std::size_t bytes = input.bytes() + (embedding ? embedding->bytes() : 0);
  for (const BlockState<T>& block : blocks) bytes += block.bytes();
  return bytes + (head ? head->bytes() : 0);
}

template <class T>
T* MicroBatchState<T>::output() {
  if (!blocks.empty()) return blocks.back().output.data();
  return embedding ? embedding->output.data() : input.data();
}

template <class T>
const T* MicroBatchState<T>::BlockInput(std::size_t index) const {
  if (index > 0) return blocks[index - 1].output.data();
  return embedding ? embedding->output.data() : input.data();
}

ADAPTIVE_TRAIN_FOR_EACH_SCALAR(template struct NormStatistics)
ADAPTIVE_TRAIN_FOR_EACH_SCALAR(template struct KeptActivations)
ADAPTIVE_TRAIN_FOR_EACH_SCALAR(template struct CheapActivations)
ADAPTIVE_TRAIN_FOR_EACH_SCALAR(template struct BlockState)
ADAPTIVE_TRAIN_FOR_EACH_SCALAR(template struct EmbeddingState)
ADAPTIVE_TRAIN_FOR_EACH_SCALAR(template struct HeadState)
ADAPTIVE_TRAIN_FOR_EACH_SCALAR(template struct MicroBatchState)

}  // namespace adaptive_train
