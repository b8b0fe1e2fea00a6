// A checkpoint's manifest and shard indices: what is accepted is consistent, and reads again as it
// was written.
#include "runtime/checkpoint/checkpoint_coverage.h"
#include "runtime/checkpoint/checkpoint_format.h"
#include "tests/fuzz/fuzz.h"

namespace adaptive_train::fuzz {
namespace {

CheckpointManifest SomeManifest() {
  CheckpointManifest manifest;
  manifest.at = {120, 118, "model.heads = \"6\"", {{"loss_scale", 65536.0}, {"tiny", 1e-300}}};
  manifest.parameters = {{"wte.weight", {300, 7}, 2100}, {"ln_f.bias", {7}, 7}, {"none", {0}, 0}};
  manifest.shards = {{12648, 0x0123456789abcdef}, {12636, 0xfedcba9876543210}};
  return manifest;
}

/// The first of two shards of all parameters; the last two blocks make one parameter.
ShardIndex SomeIndex() {
  ShardIndex index;
  index.step = 120;
  index.arena = {{{"wte.weight", {0, 100}},
                  {"ln_f.bias"},
                  {"wte.weight", {100, 300}, {{0, 3}, {5, 7}}},
                  {"wte.weight", {100, 300}, {{3, 5}}}},
                 {{1500, 2107}, 400, 2, 1}};
  for (const ElementRange& range : index.arena->rule.OwnedBy(0)) index.elements += range.size();
  index.residuals = 2107;
  index.block_hashes = {1};
  return index;
}

/// As version 2 has them: without residuals.
std::string SomeOldIndex() {
  return R"({"format_version": 2, "step": 7, "parameters": [["ln_f.bias", 0, 7]], )"
         R"("first_moments": [], "second_moments": [], "block_xxh3": ["0123456789abcdef"]})";
}

void CheckManifest(std::string_view input) {
  const auto manifest = ParseManifest(input, "input");
  if (!manifest) return Require(!manifest.error().message.empty());
  std::int64_t elements = 0;
  for (const CheckpointParameter& parameter : manifest->parameters) {
    Require(parameter.count >= 0);
    elements += parameter.count;
  }
  Require(elements >= 0 && elements * 4 / 4 == elements);
  // A number too large for a double was accepted as infinity: it is refused when written.
  const auto text = ManifestText(*manifest);
  if (!text) return;
  const auto again = ParseManifest(*text, "again");
  Require(again && ManifestText(*again).value() == *text);
}

/// What a shard that fits holds lies in the model, and is as much as it says.
void CheckRuns(const std::vector<CheckpointParameter>& parameters, const ShardIndex& index) {
  const auto map = ArenaMap::Of(ModelPlaces(parameters), index.arena->blocks);
  Require(map && map->size() >= 2107);
  std::int64_t elements = 0;
  for (const ArenaRun& run : map->RunsOf(index.arena->rule.OwnedBy(index.place))) {
    Require(run.count > 0 && run.place >= 0 && run.place + run.count <= 2107);
    elements += run.count;
  }
  Require(elements >= index.elements);
}

void CheckIndex(std::string_view input) {
  const auto index = ParseIndex(input, "input");
  if (!index) return Require(!index.error().message.empty());
  Require(index->Bytes() >= 0);
  if (!index->listed) {
    const auto again = ParseIndex(IndexText(*index), "again");
    Require(again && IndexText(*again) == IndexText(*index));
  }
  const std::vector<CheckpointParameter> parameters = SomeManifest().parameters;
  ShardIndex other = SomeIndex();
  other.arena.reset();
  other.place = 1;
  other.elements = 2107 - other.elements;
  const auto covered = CheckCoverage(parameters, {*index, other});
  Require(covered || !covered.error().message.empty());
  if (covered && index->arena) CheckRuns(parameters, *index);
}

}  // namespace

void FuzzOne(std::string_view input) {
  CheckManifest(input);
  CheckIndex(input);
}

std::vector<std::string> FuzzSeeds() {
  return {ManifestText(SomeManifest()).value(),
          IndexText(SomeIndex()),
          SomeOldIndex(),
          R"({"format_version": 3, "step": 7, "parameters": [["wte.weight", 0, 2000]], )"
          R"("first_moments": [], "second_moments": [], "residuals": [["wte.weight", 5, 7]], )"
          R"("block_xxh3": ["0123456789abcdef"]})",
          "{\"format_version\": 5}",
          "[]"};
}

}  // namespace adaptive_train::fuzz
