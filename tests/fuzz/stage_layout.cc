// Layouts that people write: what is accepted covers all layers in order, and reads again as it is
// printed.
#include "core/schedule/stage_layout.h"

#include "tests/fuzz/fuzz.h"

namespace adaptive_train::fuzz {

void FuzzOne(std::string_view input) {
  constexpr int kBlocks = 7;
  const auto stages = StageLayoutFromText(input, kBlocks);
  if (!stages) {
    Require(!stages.error().message.empty());
    Require(stages.error().message.find('\n') == std::string::npos);
    return;
  }
  int layer = 0;
  for (const StageLayers& stage : *stages) {
    Require(stage.first_layer == layer && stage.end_layer >= layer);
    layer = stage.end_layer;
  }
  Require(layer == kBlocks + 2);
  const auto again = StageLayoutFromText(ToText(*stages), kBlocks);
  Require(again && *again == *stages);
}

std::vector<std::string> FuzzSeeds() {
  return {"Et*3|(tt|)*2L", "Ettt|tt|,tt|L",     "Et*7L",       "E|(t|)*7|L", "E||*3t*7|L",
          "(Et*7)*1|L",    "Et*3|(tt|)*29,m|L", "Et*99999999L"};
}

}  // namespace adaptive_train::fuzz
