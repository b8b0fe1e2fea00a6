// Which of the model's layers the layers of a rank's arena are.
#pragma once

#include <vector>

#include "runtime/model/parameter_layout.h"

namespace adaptive_train {

/// For each layer of LayersOf(layout), its number in ModelShape::layers of a model of `blocks`
/// blocks: embedding, blocks, head. Ends that the rank does not hold have theirs, too.
std::vector<int> LayerNumbersOf(const ParameterLayout& layout, std::int64_t blocks);

}  // namespace adaptive_train
