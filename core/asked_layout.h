// What parallel.layout asks for: stages written by hand, dealt out to the ranks of a pipeline.
#pragma once

#include <optional>
#include <vector>

#include "core/config.h"
#include "core/result.h"
#include "core/schedule/stage_layout.h"

namespace adaptive_train {

struct AskedLayout {
  /// As the text has them, none empty. Chunk c is of the pipeline's stage c mod `pipeline`.
  std::vector<StageLayers> chunks;
  int pipeline = 1;    // stages
  int interleave = 1;  // chunks of each
};

/// The stages of parallel.layout; none if it is "auto". Where parallel.pipeline and
/// parallel.interleave are "auto", the pipeline has as many stages as the text, or with a schedule
/// of several chunks half as many. Fails in one line that names the key, the place and what is
/// allowed: on a text that is not the model's, on stages without layers, and where their number does
/// not fit parallel.pipeline, parallel.interleave or parallel.schedule.
Result<std::optional<AskedLayout>> AskedLayoutOf(const Config& config);

}  // namespace adaptive_train
