// Files of a hub that are cut off or hold what nobody expects are refused in one line.
#include "runtime/checkpoint/hf_config.h"
#include "runtime/checkpoint/hf_weights.h"
#include "runtime/checkpoint/safetensors.h"
#include "tests/unit/odd_documents.h"
#include "tests/unit/runtime_checkpoint/temporary_hf_folder.h"

namespace adaptive_train::hf_odd_documents_test {
namespace {

TEST(OddHubFiles, ConfigsAreRefused) {
  ModelDims dims{.layers = 2, .heads = 4, .hidden = 32, .sequence = 16, .vocab = 300};
  for (const ModelKind kind : {ModelKind::kGpt2, ModelKind::kLlama, ModelKind::kBert}) {
    dims.kind = kind;
    if (kind == ModelKind::kLlama)
      dims.rope_scaling = {.factor = 4, .original_sequence = 8};
    else
      dims.rope_scaling = {};
    ExpectOddDocumentsRefused(HfConfigText(dims), [](std::string_view text) {
      return ParseHfConfig(text, std::nullopt);
    });
  }
}

TEST(OddHubFiles, IndicesAreRefused) {
  TemporaryHfFolder folder;
  const std::vector<TensorSource> sources{{"a", {1}, [](std::span<float> v) { v[0] = 1; }}};
  ASSERT_TRUE(WriteSafetensors(folder / "m-1.safetensors", sources));
  ExpectOddDocumentsRefused(
      R"({"metadata": {"total_size": 4}, "weight_map": {"a": "m-1.safetensors"}})",
      [&](const std::string& text) {
        folder.Write("model.safetensors.index.json", text);
        return HfWeights::Open(folder.path());
      });
}

TEST(OddHubFiles, HeadersAreRefused) {
  ExpectOddDocumentsRefused(
      R"({"__metadata__": {"format": "pt"}, "a": {"dtype": "F32", "shape": [2],
          "data_offsets": [0, 8]}})",
      [](std::string_view text) { return ParseSafetensorsHeader(text, 8); });
}

}  // namespace
}  // namespace adaptive_train::hf_odd_documents_test
