// A checkpoint's parameters alone: to begin a run with them, to evaluate or to export them.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>

#include "core/result.h"
#include "kernels/buffer.h"
#include "runtime/model/bucket_rule.h"
#include "runtime/model/parameter_layout.h"

namespace adaptive_train {

/// Reads and checks `ranges` of the parameters of the checkpoint in `folder` into `parameters`, the
/// arena of `layout` in `memory`, which is a part of the model of `dims`; other elements are not touched. Gives
/// the checkpoint's step. Refuses one of another model; what the run was besides does not matter.
/// Calls `on_block` after each block that is read. Blocking; any thread.
Result<std::int64_t> ReadParameters(
    const std::string& folder, const ModelDims& dims, const ParameterLayout& layout,
    const ElementRanges& ranges, kernels::DeviceMemory& memory, std::span<float> parameters,
    const std::function<void()>& on_block = [] {});

}  // namespace adaptive_train
