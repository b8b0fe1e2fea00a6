// Llama 3, Mistral and Qwen 2 as Hugging Face's folders hold them: their logits against figures
// that PyTorch computed once (fixtures/make_hf_fixtures.py), and config.json there and back.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>

#include "core/config.h"
#include "kernels/cpu/cpu_device.h"
#include "kernels/reference/reference_device.h"
#include "runtime/checkpoint/hf_checkpoint.h"
#include "runtime/checkpoint/hf_config.h"
#include "runtime/checkpoint/hf_model.h"
#include "runtime/checkpoint/safetensors.h"
#include "runtime/model/transformer_stage.h"
#include "tests/unit/runtime_checkpoint/temporary_hf_folder.h"

namespace adaptive_train::hf_llama_family_test {
namespace {

using testing::HasSubstr;
using Json = nlohmann::json;

Json LoadFixture(const std::string& name) {
  std::ifstream file(SOURCE_DIR "/tests/unit/runtime_checkpoint/fixtures/" + name + ".json");
  return Json::parse(file);
}

void WriteFolder(const Json& fixture, const TemporaryHfFolder& folder) {
  std::vector<TensorSource> sources;
  for (const Json& tensor : fixture.at("tensors")) {
    const auto values = tensor.at("values").get<std::vector<float>>();
    sources.push_back({tensor.at("name"), tensor.at("shape"), [values](std::span<float> out) {
                         std::copy(values.begin(), values.end(), out.begin());
                       }});
  }
  ASSERT_TRUE(WriteSafetensors(folder / "model.safetensors", sources));
  folder.Write("config.json", fixture.at("config").dump());
}

template <class T>
std::vector<double> LogitsOf(const HfModel& model, const std::vector<std::int32_t>& tokens,
                             kernels::Device<T>& device) {
  const std::vector<T> parameters(model.parameters.begin(), model.parameters.end());
  std::vector<T> gradients(parameters.size());
  const ParameterLayout layout(model.dims, StageSlice::Whole(model.dims));
  StageWorkspace<T> workspace(model.dims, true, {}, device);
  TransformerStage<T> stage(model.dims, StageSlice::Whole(model.dims), {}, device,
                            {layout, parameters, gradients}, workspace);
  MicroBatchState<T> state = stage.NewState();
  std::vector<T> logits(tokens.size() * static_cast<std::size_t>(model.dims.vocab));
  stage.Logits(state, {tokens, {}, 1, {}}, logits.data());
  return {logits.begin(), logits.end()};
}

double LargestDifference(const std::vector<double>& a, const std::vector<double>& b) {
  EXPECT_EQ(a.size(), b.size());
  double largest = 0;
  for (std::size_t i = 0; i < std::min(a.size(), b.size()); ++i)
    largest = std::max(largest, std::abs(a[i] - b[i]));
  return largest;
}

/// How positions turn, in the newer files' form.
Json RopeOf(const Json& config) {
  Json rope{{"rope_type", "default"}};
  if (config.contains("rope_theta")) rope["rope_theta"] = config.at("rope_theta");
  for (const char* key : {"rope_scaling", "rope_parameters"}) {
    if (config.contains(key) && config.at(key).is_object()) rope.update(config.at(key));
  }
  return rope;
}

class HfLlamaFamily : public testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    fixture_ = LoadFixture(GetParam());
    WriteFolder(fixture_, folder_);
  }

  Json fixture_;
  TemporaryHfFolder folder_;
};

INSTANTIATE_TEST_SUITE_P(Models, HfLlamaFamily, testing::Values("llama3", "mistral", "qwen2"),
                         [](const auto& test) { return std::string(test.param); });

TEST_P(HfLlamaFamily, LogitsAreThoseOfPyTorch) {
  auto model = ReadHfModel(folder_.path(), std::nullopt);
  ASSERT_TRUE(model) << model.error().message;
  EXPECT_THAT(model->notes, testing::IsEmpty());
  const auto tokens = fixture_.at("tokens").get<std::vector<std::int32_t>>();
  const auto expected = fixture_.at("logits").get<std::vector<double>>();
  kernels::reference::ReferenceDevice<double> reference;
  EXPECT_LE(LargestDifference(expected, LogitsOf(*model, tokens, reference)), 1e-12);
  kernels::cpu::CpuDevice<float> processor(1);
  EXPECT_LE(LargestDifference(expected, LogitsOf(*model, tokens, processor)), 1e-5);
}

TEST_P(HfLlamaFamily, ConfigAndTensorsComeBack) {
  auto model = ReadHfModel(folder_.path(), std::nullopt);
  ASSERT_TRUE(model) << model.error().message;
  TemporaryHfFolder back;
  auto written = WriteHfModel(back.path(), model->dims, model->parameters);
  ASSERT_TRUE(written) << written.error().message;
  const Json after = Json::parse(back.Read("config.json"));
  for (const auto& [key, value] : fixture_.at("config").items()) {
    if (key.starts_with("rope_")) continue;
    EXPECT_EQ(after.value(key, Json()), value) << key;
  }
  EXPECT_EQ(RopeOf(after), RopeOf(fixture_.at("config")));
  auto file = SafetensorsFile::Open(back / "model.safetensors");
  ASSERT_TRUE(file);
  EXPECT_EQ(file->entries().size(), fixture_.at("tensors").size());
  for (const Json& tensor : fixture_.at("tensors")) {
    auto values = file->Read(tensor.at("name"), tensor.at("shape"));
    ASSERT_TRUE(values) << values.error().message;
    EXPECT_EQ(*values, tensor.at("values").get<std::vector<float>>()) << tensor.at("name");
  }
}

TEST_P(HfLlamaFamily, TheConfigurationOfAnImportAsksForTheSameModel) {
  auto imported = ImportCheckpoint(folder_.path(), std::nullopt, folder_ / "start");
  ASSERT_TRUE(imported) << imported.error().message;
  Config config;
  config.model = ConfigOf(imported->dims);
  config.data.train = "text";
  folder_.Write("config.toml", ToToml(config));
  auto read = LoadConfig(folder_ / "config.toml", {});
  ASSERT_TRUE(read) << read.error().message;
  auto exported = ExportCheckpoint(imported->path, DimsOf(read->model), folder_ / "back");
  ASSERT_TRUE(exported) << exported.error().message;
  EXPECT_EQ(folder_.Read("back/config.json"), HfConfigText(imported->dims));
}

TEST_P(HfLlamaFamily, AnotherRopeBaseOrEpsilonIsAnotherModel) {
  auto imported = ImportCheckpoint(folder_.path(), std::nullopt, folder_ / "start");
  ASSERT_TRUE(imported) << imported.error().message;
  const auto error_with = [&](auto change) {
    ModelDims dims = imported->dims;
    change(dims);
    auto exported = ExportCheckpoint(imported->path, dims, folder_ / "back");
    return exported ? "accepted" : exported.error().message;
  };
  EXPECT_THAT(error_with([](ModelDims& dims) { dims.rope_base = kRopeBase; }),
              HasSubstr("of a run with model.kind = llama"));
  EXPECT_THAT(error_with([](ModelDims& dims) { dims.rope_scaling.factor = 3; }),
              HasSubstr("not model.kind = llama"));
  EXPECT_THAT(error_with([](ModelDims& dims) { dims.norm_epsilon = 0.01; }),
              HasSubstr("model.norm_epsilon = 0.01"));
  EXPECT_EQ(error_with([](ModelDims&) {}), "accepted");
}

/// What the fixture's config.json with some keys changed is told, or "accepted".
std::string ErrorWith(const char* name, const Json& keys,
                      std::optional<std::int64_t> sequence = std::nullopt) {
  Json config = LoadFixture(name).at("config");
  for (const auto& [key, value] : keys.items()) config[key] = value;
  auto parsed = ParseHfConfig(config.dump(), sequence);
  return parsed ? "accepted" : parsed.error().message;
}

TEST(HfLlamaConfig, OtherRotationsAreRefused) {
  EXPECT_EQ(ErrorWith("llama3", {{"rope_scaling", {{"rope_type", "yarn"}, {"factor", 4.0}}}}),
            "rope_scaling: rope_type = yarn: allowed are default, llama3");
  EXPECT_EQ(ErrorWith("llama3", {{"rope_scaling", {{"type", "linear"}, {"factor", 4.0}}}}),
            "rope_scaling: type = linear: allowed are default, llama3");
  EXPECT_EQ(ErrorWith("qwen2", {{"rope_parameters", {{"rope_type", "yarn"}}}}),
            "rope_parameters: rope_type = yarn: allowed are default, llama3");
  EXPECT_EQ(ErrorWith("llama3", {{"rope_scaling", {{"rope_type", "llama3"}}}}),
            "rope_scaling: factor is missing: a number is needed");
  EXPECT_EQ(ErrorWith("llama3", {{"rope_scaling", "llama3"}}),
            "rope_scaling = \"llama3\": allowed is an object");
  EXPECT_EQ(ErrorWith("qwen2", {{"rope_scaling", {{"type", "mrope"}}}}),
            "rope_scaling = an object: allowed is null");
  EXPECT_EQ(ErrorWith("mistral", {{"rope_theta", 0}}),
            "model.rope_base = 0: allowed are 1 to 1000000000000");
  EXPECT_EQ(ErrorWith("mistral", {{"partial_rotary_factor", 0.5}}),
            "partial_rotary_factor = 0.5: allowed is 1");
  Json scaling = LoadFixture("llama3").at("config").at("rope_scaling");
  scaling["low_freq_factor"] = 2.0;
  EXPECT_THAT(ErrorWith("llama3", {{"rope_scaling", scaling}}),
              HasSubstr("model.rope_low_freq_factor = 2: must lie between 0 and"));
}

TEST(HfLlamaConfig, ASequenceLongerThanTheWindowIsRefused) {
  const std::string refused =
      "sliding_window = 6: a sequence of 7 is longer, which is not supported; allowed are 1 to 6 "
      "(import --sequence)";
  EXPECT_EQ(ErrorWith("mistral", {{"sliding_window", 6}}), refused);
  EXPECT_EQ(ErrorWith("mistral", {{"sliding_window", 6}}, 6), "accepted");
  EXPECT_EQ(ErrorWith("mistral", {{"sliding_window", nullptr}}), "accepted");
  EXPECT_EQ(ErrorWith("mistral", {{"sliding_window", 0}}),
            "sliding_window = 0: 1 or more is needed");
  const Json window{{"use_sliding_window", true}, {"sliding_window", 6}, {"max_window_layers", 1}};
  EXPECT_EQ(ErrorWith("qwen2", window), refused);
  Json no_layer = window;
  no_layer["max_window_layers"] = 2;
  EXPECT_EQ(ErrorWith("qwen2", no_layer), "accepted");
  EXPECT_EQ(ErrorWith("qwen2", {{"sliding_window", 6}}), "accepted");
}

TEST(HfLlamaConfig, MissingKeysMeanWhatTransformersTakes) {
  const auto dims_without = [](const char* name, const char* key) {
    Json config = LoadFixture(name).at("config");
    config.erase(key);
    config["max_position_embeddings"] = 4096;
    auto parsed = ParseHfConfig(config.dump());
    EXPECT_TRUE(parsed) << parsed.error().message;
    return parsed ? parsed->dims : ModelDims{};
  };
  EXPECT_EQ(dims_without("mistral", "sliding_window").sliding_window, 4096);
  EXPECT_EQ(dims_without("llama3", "num_key_value_heads").KvHeads(), 2);
  EXPECT_EQ(dims_without("llama3", "rms_norm_eps").NormEpsilon(), 1e-6);
  EXPECT_EQ(dims_without("qwen2", "rope_parameters").rope_base, 10000);
  EXPECT_THAT(ErrorWith("llama3", {{"rms_norm_eps", 0}}),
              HasSubstr("rms_norm_eps = 0: allowed are numbers above 0"));
  EXPECT_THAT(ErrorWith("llama3", {{"head_dim", 0}}), HasSubstr("head_dim = 0: 1 or more"));
  EXPECT_THAT(ErrorWith("llama3", {{"head_dim", 5}}), HasSubstr("model.head_size = 5: rotary"));
}

TEST(HfLlamaConfig, EveryKindOfAttentionBiasComesBack) {
  for (const AttentionBias bias :
       {AttentionBias::kOfKind, AttentionBias::kQkv, AttentionBias::kAll}) {
    const ModelDims dims{.layers = 1,
                         .heads = 2,
                         .hidden = 4,
                         .sequence = 3,
                         .vocab = 5,
                         .kind = ModelKind::kLlama,
                         .attention_bias = bias};
    auto parsed = ParseHfConfig(HfConfigText(dims));
    ASSERT_TRUE(parsed) << parsed.error().message;
    EXPECT_EQ(ToString(parsed->dims.attention_bias), std::string(ToString(bias)));
  }
}

TEST(HfLlamaConfig, AWindowBesideABiasOfTheOutputIsNotExported) {
  const ModelDims dims{.layers = 1,
                       .heads = 2,
                       .hidden = 4,
                       .sequence = 3,
                       .vocab = 5,
                       .kind = ModelKind::kLlama,
                       .attention_bias = AttentionBias::kAll,
                       .sliding_window = 4};
  const ParameterLayout layout(dims, StageSlice::Whole(dims));
  TemporaryHfFolder folder;
  auto written = WriteHfModel(folder / "model", dims,
                              std::vector<float>(static_cast<std::size_t>(layout.size())));
  ASSERT_FALSE(written);
  EXPECT_THAT(written.error().message, HasSubstr("model.sliding_window = 4: no model of"));
}

}  // namespace
}  // namespace adaptive_train::hf_llama_family_test
