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

ShardIndex SomeIndex() {
  ShardIndex index;
  index.step = 120;
  index.pieces[0] = {{"wte.weight", 0, 2100}, {"ln_f.bias", 0, 7}};
  index.pieces[1] = {{"wte.weight", 1000, 2100}};
  index.pieces[2] = {{"wte.weight", 0, 300000}};
  index.pieces[kResiduals] = {{"wte.weight", 5, 2100}, {"ln_f.bias", 0, 3}};
  index.block_hashes = {1, 2};
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

void CheckIndex(std::string_view input) {
  const auto index = ParseIndex(input, "input");
  if (!index) return Require(!index.error().message.empty());
  Require(index->Bytes() >= 0);
  const auto again = ParseIndex(IndexText(*index), "again");
  Require(again && IndexText(*again) == IndexText(*index));
  const auto covered = CheckCoverage(SomeManifest().parameters, {*index});
  Require(covered || !covered.error().message.empty());
}

}  // namespace

void FuzzOne(std::string_view input) {
  CheckManifest(input);
  CheckIndex(input);
}

std::vector<std::string> FuzzSeeds() {
  return {ManifestText(SomeManifest()).value(), IndexText(SomeIndex()), SomeOldIndex(),
          "{\"format_version\": 4}", "[]"};
}

}  // namespace adaptive_train::fuzz
