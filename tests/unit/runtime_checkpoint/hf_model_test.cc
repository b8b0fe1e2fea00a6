// Models go to Hugging Face's names and come back; folders that hold another model are refused.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <nlohmann/json.hpp>
#include <set>

#include "runtime/checkpoint/hf_config.h"
#include "runtime/checkpoint/hf_model.h"
#include "runtime/checkpoint/hf_names.h"
#include "runtime/checkpoint/safetensors.h"
#include "tests/unit/runtime_checkpoint/temporary_hf_folder.h"

namespace adaptive_train::hf_model_test {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using Json = nlohmann::json;

ModelDims SmallDims(ModelKind kind) {
  ModelDims dims{.layers = 2, .heads = 4, .hidden = 8, .sequence = 6, .vocab = 11};
  dims.kind = kind;
  dims.kv_heads = kind == ModelKind::kLlama ? 2 : 4;
  dims.ffn = 12;
  dims.tie_embeddings = kind != ModelKind::kLlama;
  return dims;
}

/// Every element another number.
std::vector<float> CountedParameters(const ModelDims& dims) {
  const ParameterLayout layout(dims, StageSlice::Whole(dims));
  std::vector<float> values(static_cast<std::size_t>(layout.size()));
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i);
  return values;
}

std::string ReadError(const TemporaryHfFolder& folder) {
  auto model = ReadHfModel(folder.path(), std::nullopt);
  return model ? "accepted" : model.error().message;
}

class HfModelOfKind : public testing::TestWithParam<ModelKind> {};
INSTANTIATE_TEST_SUITE_P(Kinds, HfModelOfKind,
                         testing::Values(ModelKind::kGpt2, ModelKind::kLlama, ModelKind::kBert));

TEST_P(HfModelOfKind, ComesBackAsItWas) {
  const ModelDims dims = SmallDims(GetParam());
  const std::vector<float> parameters = CountedParameters(dims);
  TemporaryHfFolder folder;
  auto written = WriteHfModel(folder / "model", dims, parameters);
  ASSERT_TRUE(written) << written.error().message;
  auto model = ReadHfModel(folder / "model", std::nullopt);
  ASSERT_TRUE(model) << model.error().message;
  EXPECT_EQ(model->parameters, parameters);
  EXPECT_EQ(model->dims.kind, dims.kind);
  EXPECT_EQ(model->dims.layers, dims.layers);
  EXPECT_EQ(model->dims.heads, dims.heads);
  EXPECT_EQ(model->dims.KvHeads(), dims.KvHeads());
  EXPECT_EQ(model->dims.hidden, dims.hidden);
  EXPECT_EQ(model->dims.Ffn(), dims.Ffn());
  EXPECT_EQ(model->dims.sequence, dims.sequence);
  EXPECT_EQ(model->dims.vocab, dims.vocab);
  EXPECT_EQ(model->dims.tie_embeddings, dims.tie_embeddings);
  EXPECT_THAT(model->notes, IsEmpty());
}

TEST_P(HfModelOfKind, TensorsAreEveryElementOnce) {
  const ModelDims dims = SmallDims(GetParam());
  const ParameterLayout layout(dims, StageSlice::Whole(dims));
  std::vector<float> seen(static_cast<std::size_t>(layout.size()));
  for (const HfTensor& tensor : HfTensors(dims, layout)) {
    std::vector<float> before(seen),
        ones(static_cast<std::size_t>(tensor.rows * tensor.columns), 1.0F);
    tensor.CopyOut(seen, ones);
    for (float& value : ones) value += 1;
    tensor.CopyIn(ones, seen);
  }
  EXPECT_THAT(seen, testing::Each(1.0F));
}

TEST_P(HfModelOfKind, AFolderThatHoldsAModelIsLeftAlone) {
  const ModelDims dims = SmallDims(GetParam());
  TemporaryHfFolder folder;
  ASSERT_TRUE(WriteHfModel(folder.path(), dims, CountedParameters(dims)));
  auto again = WriteHfModel(folder.path(), dims, CountedParameters(dims));
  ASSERT_FALSE(again);
  EXPECT_THAT(again.error().message, HasSubstr("holds config.json already; name another folder"));
}

/// Names and shapes of what was written, less layer 1, which is like layer 0.
std::vector<std::string> WrittenTensors(const ModelDims& dims) {
  TemporaryHfFolder folder;
  EXPECT_TRUE(WriteHfModel(folder.path(), dims, CountedParameters(dims)));
  auto file = SafetensorsFile::Open(folder / "model.safetensors");
  std::vector<std::string> out;
  for (const auto& [name, entry] : file->entries()) {
    if (name.find(".1.") == std::string::npos) out.push_back(name + " " + Json(entry.shape).dump());
  }
  return out;
}

TEST(HfModel, Gpt2HasTheNamesOfGpt2LmHeadModel) {
  EXPECT_THAT(
      WrittenTensors(SmallDims(ModelKind::kGpt2)),
      ElementsAre(
          "transformer.h.0.attn.c_attn.bias [24]", "transformer.h.0.attn.c_attn.weight [8,24]",
          "transformer.h.0.attn.c_proj.bias [8]", "transformer.h.0.attn.c_proj.weight [8,8]",
          "transformer.h.0.ln_1.bias [8]", "transformer.h.0.ln_1.weight [8]",
          "transformer.h.0.ln_2.bias [8]", "transformer.h.0.ln_2.weight [8]",
          "transformer.h.0.mlp.c_fc.bias [12]", "transformer.h.0.mlp.c_fc.weight [8,12]",
          "transformer.h.0.mlp.c_proj.bias [8]", "transformer.h.0.mlp.c_proj.weight [12,8]",
          "transformer.ln_f.bias [8]", "transformer.ln_f.weight [8]",
          "transformer.wpe.weight [6,8]", "transformer.wte.weight [11,8]"));
}

TEST(HfModel, LlamaHasTheNamesOfLlamaForCausalLm) {
  EXPECT_THAT(WrittenTensors(SmallDims(ModelKind::kLlama)),
              ElementsAre("lm_head.weight [11,8]", "model.embed_tokens.weight [11,8]",
                          "model.layers.0.input_layernorm.weight [8]",
                          "model.layers.0.mlp.down_proj.weight [8,12]",
                          "model.layers.0.mlp.gate_proj.weight [12,8]",
                          "model.layers.0.mlp.up_proj.weight [12,8]",
                          "model.layers.0.post_attention_layernorm.weight [8]",
                          "model.layers.0.self_attn.k_proj.weight [4,8]",
                          "model.layers.0.self_attn.o_proj.weight [8,8]",
                          "model.layers.0.self_attn.q_proj.weight [8,8]",
                          "model.layers.0.self_attn.v_proj.weight [4,8]", "model.norm.weight [8]"));
}

TEST(HfModel, BertHasTheNamesOfBertForMaskedLm) {
  const std::string layer = "bert.encoder.layer.0.";
  EXPECT_THAT(
      WrittenTensors(SmallDims(ModelKind::kBert)),
      ElementsAre(
          "bert.embeddings.LayerNorm.bias [8]", "bert.embeddings.LayerNorm.weight [8]",
          "bert.embeddings.position_embeddings.weight [6,8]",
          "bert.embeddings.token_type_embeddings.weight [1,8]",
          "bert.embeddings.word_embeddings.weight [11,8]",
          layer + "attention.output.LayerNorm.bias [8]",
          layer + "attention.output.LayerNorm.weight [8]",
          layer + "attention.output.dense.bias [8]", layer + "attention.output.dense.weight [8,8]",
          layer + "attention.self.key.bias [8]", layer + "attention.self.key.weight [8,8]",
          layer + "attention.self.query.bias [8]", layer + "attention.self.query.weight [8,8]",
          layer + "attention.self.value.bias [8]", layer + "attention.self.value.weight [8,8]",
          layer + "intermediate.dense.bias [12]", layer + "intermediate.dense.weight [12,8]",
          layer + "output.LayerNorm.bias [8]", layer + "output.LayerNorm.weight [8]",
          layer + "output.dense.bias [8]", layer + "output.dense.weight [8,12]",
          "cls.predictions.bias [11]", "cls.predictions.transform.LayerNorm.bias [8]",
          "cls.predictions.transform.LayerNorm.weight [8]",
          "cls.predictions.transform.dense.bias [8]",
          "cls.predictions.transform.dense.weight [8,8]"));
}

TEST(HfModel, KeysAndUpAreColumnsTransposed) {
  const ModelDims dims = SmallDims(ModelKind::kLlama);
  const ParameterLayout layout(dims, StageSlice::Whole(dims));
  TemporaryHfFolder folder;
  ASSERT_TRUE(WriteHfModel(folder.path(), dims, CountedParameters(dims)));
  auto file = SafetensorsFile::Open(folder / "model.safetensors");
  ASSERT_TRUE(file);
  const auto keys = file->Read("model.layers.1.self_attn.k_proj.weight", {4, 8});
  const auto up = file->Read("model.layers.1.mlp.up_proj.weight", {12, 8});
  ASSERT_TRUE(keys && up);
  const auto c_attn = static_cast<float>(layout.Find("h.1.attn.c_attn.weight")->offset);
  const auto c_fc = static_cast<float>(layout.Find("h.1.mlp.c_fc.weight")->offset);
  // Input 3, the second column of keys; ours has 16 columns, queries first.
  EXPECT_EQ((*keys)[1 * 8 + 3], c_attn + 3 * 16 + 8 + 1);
  // Input 5, the third column of up; ours has 24 columns, gate first.
  EXPECT_EQ((*up)[2 * 8 + 5], c_fc + 5 * 24 + 12 + 2);
}

TEST(HfModel, FewerKeysThanQueriesAreForLlamaOnly) {
  ModelDims dims = SmallDims(ModelKind::kGpt2);
  dims.kv_heads = 2;
  TemporaryHfFolder folder;
  auto written = WriteHfModel(folder.path(), dims, CountedParameters(dims));
  ASSERT_FALSE(written);
  EXPECT_THAT(written.error().message, HasSubstr("model.kv_heads = 2: only llama"));
}

/// A written model, and its config.json with some keys changed.
class ChangedHfModel : public testing::Test {
 protected:
  void Start(ModelKind kind) {
    dims_ = SmallDims(kind);
    ASSERT_TRUE(WriteHfModel(folder_.path(), dims_, CountedParameters(dims_)));
  }
  void Change(const Json& keys) {
    Json config = Json::parse(HfConfigText(dims_));
    config.update(keys);
    folder_.Write("config.json", config.dump());
  }
  std::string ErrorWith(const Json& keys) {
    Change(keys);
    return ReadError(folder_);
  }

  TemporaryHfFolder folder_;
  ModelDims dims_;
};

TEST_F(ChangedHfModel, OtherGpt2sAreRefused) {
  Start(ModelKind::kGpt2);
  const std::string config = folder_ / "config.json";
  EXPECT_EQ(ErrorWith({{"activation_function", "relu"}}),
            config + ": activation_function = relu: allowed are gelu_new, gelu_pytorch_tanh");
  EXPECT_EQ(ErrorWith({{"layer_norm_epsilon", -1e-6}}),
            config + ": layer_norm_epsilon = -1e-06: allowed are numbers above 0");
  EXPECT_EQ(ErrorWith({{"scale_attn_by_inverse_layer_idx", true}}),
            config + ": scale_attn_by_inverse_layer_idx = true: allowed is false");
  EXPECT_EQ(ErrorWith({{"n_layer", nullptr}}),
            config + ": n_layer is missing: a whole number is needed");
  EXPECT_EQ(ErrorWith({{"n_layer", "two"}}),
            config + ": n_layer = \"two\": allowed is a whole number");
  EXPECT_EQ(ErrorWith({{"model_type", "mixtral"}}),
            config + ": model_type = \"mixtral\": allowed are gpt2, llama, mistral, qwen2, bert");
  EXPECT_THAT(ErrorWith({{"n_embd", -8}}), HasSubstr("model.hidden = -8: allowed are 1 to"));
  EXPECT_THAT(ErrorWith({{"n_head", 0}}), HasSubstr("model.heads = 0: allowed are 1 to"));
  EXPECT_THAT(ErrorWith({{"n_embd", 1 << 20}, {"n_head", 1}}), HasSubstr("the tensors have"));
  EXPECT_THAT(ErrorWith({{"n_layer", 3}}), HasSubstr("h.2.ln_1.weight is not there"));
  EXPECT_THAT(ErrorWith({{"n_layer", 1 << 20}}), HasSubstr("the tensors have"));
  EXPECT_THAT(ErrorWith({{"vocab_size", 10}}),
              HasSubstr("transformer.wte.weight is [11, 8], expected [10, 8]"));
  EXPECT_EQ(ErrorWith(Json::object()), "accepted");
  // Deeper than a stack is: refused, not fallen over.
  folder_.Write("config.json", "{\"model_type\": \"gpt2\", \"vocab_size\": " +
                                   std::string(300000, '[') + std::string(300000, ']') + "}");
  EXPECT_THAT(ReadError(folder_), HasSubstr("vocab_size = an array: allowed is"));
  folder_.Write("config.json", "[1");
  EXPECT_THAT(ReadError(folder_), HasSubstr("config.json: "));
}

TEST_F(ChangedHfModel, OtherLlamasAreRefused) {
  Start(ModelKind::kLlama);
  EXPECT_EQ(ErrorWith({{"rope_theta", 500000.0}}), "accepted");
  EXPECT_EQ(ErrorWith({{"rms_norm_eps", nullptr}}), "accepted");
  EXPECT_THAT(ErrorWith({{"attention_bias", true}}), HasSubstr("q_proj.bias is not there"));
  EXPECT_THAT(ErrorWith({{"mlp_bias", true}}), HasSubstr("mlp_bias = true: allowed is false"));
  EXPECT_THAT(ErrorWith({{"head_dim", 4}}), HasSubstr("q_proj.weight is [8, 8], expected [16, 8]"));
  EXPECT_THAT(ErrorWith({{"num_key_value_heads", 3}}), HasSubstr("model.kv_heads = 3"));
  EXPECT_THAT(ErrorWith({{"num_key_value_heads", nullptr}}),
              HasSubstr("k_proj.weight is [4, 8], expected [8, 8]"));
}

TEST_F(ChangedHfModel, OtherBertsAreRefused) {
  Start(ModelKind::kBert);
  EXPECT_THAT(ErrorWith({{"hidden_act", "gelu_new"}}),
              HasSubstr("hidden_act = gelu_new: allowed is gelu"));
  EXPECT_THAT(ErrorWith({{"position_embedding_type", "relative_key"}}),
              HasSubstr("allowed is absolute"));
  EXPECT_THAT(ErrorWith({{"is_decoder", true}}), HasSubstr("is_decoder = true: allowed is false"));
  EXPECT_THAT(ErrorWith({{"type_vocab_size", 0}}), HasSubstr("type_vocab_size = 0: 1 or more"));
}

/// Writes a model once more, with its tensors renamed or changed, and others beside them.
void Rewrite(const TemporaryHfFolder& from, const std::string& path,
             const std::function<void(TensorSource&, std::vector<float>&)>& change,
             const std::function<bool(const std::string&)>& keep) {
  auto file = SafetensorsFile::Open(from / "model.safetensors");
  ASSERT_TRUE(file);
  std::vector<TensorSource> sources;
  for (const auto& [name, entry] : file->entries()) {
    if (!keep(name)) continue;
    TensorSource source{name, entry.shape, {}};
    std::vector<float> values = *file->Read(name, entry.shape);
    change(source, values);
    source.fill = [values](std::span<float> out) {
      std::copy(values.begin(), values.end(), out.begin());
    };
    sources.push_back(source);
  }
  ASSERT_TRUE(WriteSafetensors(path, sources));
}

bool All(const std::string&) { return true; }

TEST_F(ChangedHfModel, TwoTokenTypesAndOldNamesAreRead) {
  Start(ModelKind::kBert);
  TemporaryHfFolder old;
  Rewrite(
      folder_, old / "model.safetensors",
      [](TensorSource& source, std::vector<float>& values) {
        if (source.name.find("token_type") != std::string::npos) {
          source.shape[0] = 2;
          values.resize(2 * values.size(), -1.0F);
        }
        const auto norm = source.name.find("LayerNorm.");
        if (norm == std::string::npos) return;
        source.name.replace(norm + 10, std::string::npos,
                            source.name.ends_with("weight") ? "gamma" : "beta");
      },
      All);
  Json config = Json::parse(HfConfigText(dims_));
  config["type_vocab_size"] = 2;
  old.Write("config.json", config.dump());
  auto model = ReadHfModel(old.path(), std::nullopt);
  ASSERT_TRUE(model) << model.error().message;
  EXPECT_EQ(model->parameters, CountedParameters(dims_));
  EXPECT_THAT(
      model->notes,
      ElementsAre("token types: row 0 of 2 is added to every token, the others are left out"));
}

TEST_F(ChangedHfModel, BareNamesAndBuffersAreRead) {
  Start(ModelKind::kGpt2);
  TemporaryHfFolder bare;
  bare.Write("config.json", HfConfigText(dims_));
  Rewrite(
      folder_, bare / "model.safetensors",
      [](TensorSource& source, std::vector<float>&) { source.name = source.name.substr(12); }, All);
  auto model = ReadHfModel(bare.path(), std::nullopt);
  ASSERT_TRUE(model) << model.error().message;
  EXPECT_EQ(model->parameters, CountedParameters(dims_));
}

TEST_F(ChangedHfModel, AShorterSequenceKeepsTheFirstPositions) {
  Start(ModelKind::kGpt2);
  auto model = ReadHfModel(folder_.path(), 4);
  ASSERT_TRUE(model) << model.error().message;
  EXPECT_EQ(model->dims.sequence, 4);
  EXPECT_THAT(model->notes, ElementsAre("positions: the first 4 of 6"));
  const std::vector<float> whole = CountedParameters(dims_);
  std::vector<float> expected(whole.begin(), whole.begin() + 11 * 8 + 4 * 8);
  expected.insert(expected.end(), whole.begin() + 11 * 8 + 6 * 8, whole.end());
  EXPECT_EQ(model->parameters, expected);
  auto longer = ReadHfModel(folder_.path(), 7);
  ASSERT_FALSE(longer);
  EXPECT_THAT(longer.error().message, HasSubstr("a sequence of 7: allowed are 1 to 6"));
}

/// A model in two shards, with an index that maps each tensor by `file_of`.
void WriteShards(const TemporaryHfFolder& from, const TemporaryHfFolder& to) {
  const auto first = [](const std::string& name) { return name < "transformer.h.1"; };
  const auto same = [](TensorSource&, std::vector<float>&) {};
  Rewrite(from, to / "model-00001-of-00002.safetensors", same, first);
  Rewrite(from, to / "model-00002-of-00002.safetensors", same,
          [&](const auto& name) { return !first(name); });
  Json map = Json::object();
  const auto whole = SafetensorsFile::Open(from / "model.safetensors");
  for (const auto& [name, entry] : whole->entries()) {
    map[name] =
        first(name) ? "model-00001-of-00002.safetensors" : "model-00002-of-00002.safetensors";
  }
  to.Write("model.safetensors.index.json",
           Json{{"metadata", Json::object()}, {"weight_map", map}}.dump());
  to.Write("config.json", from.Read("config.json"));
}

TEST_F(ChangedHfModel, ShardsAreRead) {
  Start(ModelKind::kGpt2);
  TemporaryHfFolder shards;
  WriteShards(folder_, shards);
  auto model = ReadHfModel(shards.path(), std::nullopt);
  ASSERT_TRUE(model) << model.error().message;
  EXPECT_EQ(model->parameters, CountedParameters(dims_));
}

TEST_F(ChangedHfModel, AnIndexThatLiesIsRefused) {
  Start(ModelKind::kGpt2);
  TemporaryHfFolder shards;
  WriteShards(folder_, shards);
  const Json index = Json::parse(shards.Read("model.safetensors.index.json"));
  const auto error_with = [&](const char* tensor, const Json& file) {
    Json changed = index;
    changed["weight_map"][tensor] = file;
    shards.Write("model.safetensors.index.json", changed.dump());
    return ReadError(shards);
  };
  EXPECT_THAT(error_with("x", "../model.safetensors"),
              HasSubstr("is not the name of a .safetensors file"));
  EXPECT_THAT(error_with("x", "model-00003-of-00002.safetensors"), HasSubstr("No such file"));
  EXPECT_THAT(error_with("x", "model-00001-of-00002.safetensors"),
              HasSubstr("tensor x is not there"));
  EXPECT_THAT(error_with("x", 7), HasSubstr("weight_map: x has no file's name"));
  shards.Write("model.safetensors.index.json", "{}");
  EXPECT_THAT(ReadError(shards), HasSubstr("has no weight_map"));
}

TEST(HfModel, AFolderWithoutWeightsIsNamed) {
  TemporaryHfFolder folder;
  EXPECT_THAT(ReadError(folder), HasSubstr("config.json: No such file"));
  folder.Write("config.json", HfConfigText(SmallDims(ModelKind::kGpt2)));
  EXPECT_THAT(ReadError(folder),
              HasSubstr("holds neither model.safetensors nor model.safetensors.index.json"));
}

}  // namespace
}  // namespace adaptive_train::hf_model_test
