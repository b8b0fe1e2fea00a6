// The size of the shared memory.
#include "runtime/model/stage_workspace.h"

#include <algorithm>

#include "runtime/model/scalars.h"

namespace adaptive_train {
namespace {

std::size_t Elements(std::int64_t rows, std::int64_t columns) {
  return static_cast<std::size_t>(rows * columns);
}

}  // namespace

template <class T>
BlockWorkspace<T>::BlockWorkspace(const ModelDims& dims, const StageOptions& options,
                                  kernels::DeviceMemory& memory)
    : d_residual(memory, Elements(options.OwnRows(dims), dims.hidden)),
      d_narrow(memory, std::max(Elements(options.Rows(dims), dims.AttentionColumns()),
                                Elements(options.OwnRows(dims), dims.hidden))),
      d_wide(memory, Elements(options.Rows(dims), std::max(dims.QkvColumns(), dims.FfnColumns()))),
      d_gated(memory,
              Architecture::Of(dims.kind).gated ? Elements(options.Rows(dims), dims.Ffn()) : 0),
      qkv_part(memory,
               dims.kv_ranks > 1 ? Elements(options.Rows(dims), dims.QkvProductColumns()) : 0),
      branch(memory, options.dropout > 0 ? Elements(options.OwnRows(dims), dims.hidden) : 0) {
  if (options.row_ranks > 1) {
    whole = {memory, Elements(options.Rows(dims), dims.hidden)};
    norm_gradients = {memory, Elements(2, dims.hidden)};
  }
  if (options.recompute == Recompute::kFull) kept.emplace(dims, options, memory);
  if (options.recompute != Recompute::kNone) cheap.emplace(dims, options, memory);
}

template <class T>
std::size_t BlockWorkspace<T>::bytes() const {
  return d_residual.bytes() + d_narrow.bytes() + d_wide.bytes() + d_gated.bytes() +
         qkv_part.bytes() + branch.bytes() + whole.bytes() + norm_gradients.bytes() +
         (kept ? kept->bytes() : 0) + (cheap ? cheap->bytes() : 0);
}

template <class T>
HeadWorkspace<T>::HeadWorkspace(const ModelDims& dims, const StageOptions& options,
                                kernels::DeviceMemory& memory)
    : normal(memory, Elements(options.Rows(dims), dims.hidden)),
      losses(memory, Elements(options.Rows(dims), 1)),
      targets(memory, Elements(options.Rows(dims), 1)) {}

template <class T>
StageWorkspace<T>::StageWorkspace(const ModelDims& dims, bool has_head, const StageOptions& options,
                                  kernels::DeviceMemory& memory)
    : block(dims, options, memory) {
  if (has_head) head.emplace(dims, options, memory);
}

ADAPTIVE_TRAIN_FOR_EACH_SCALAR(template struct BlockWorkspace)
ADAPTIVE_TRAIN_FOR_EACH_SCALAR(template struct HeadWorkspace)
ADAPTIVE_TRAIN_FOR_EACH_SCALAR(template struct StageWorkspace)

}  // namespace adaptive_train
