// Which stage has which layers, written by hand as one line of text.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "core/result.h"

namespace adaptive_train {

/// Of ModelShape::layers, [first_layer, end_layer): 0 is the embedding, then the blocks, then the
/// head. Equal numbers: a stage without layers, which passes on what it gets.
struct StageLayers {
  int first_layer = 0;
  int end_layer = 0;
  bool operator==(const StageLayers&) const = default;
};

/// Reads a layout as Megatron-LM writes them (untrusted): E the embedding, t a block, L the head, |
/// between stages, X*3 for a letter or bar three times, (tt|)*3 for a group. Commas and blanks mean
/// nothing. "Et*3|(tt|)*4L" has six stages. Fails in one line, naming the character, on anything
/// else; where E is not the first or L not the last layer, or where there are not `blocks` blocks;
/// with more than 4,096 stages.
Result<std::vector<StageLayers>> StageLayoutFromText(std::string_view text, int blocks);

/// The shortest form of this kind that reads back as `stages`, which go from the embedding to the
/// head without a gap: three or more blocks as t*3, equal stages as a group.
std::string ToText(const std::vector<StageLayers>& stages);

}  // namespace adaptive_train
