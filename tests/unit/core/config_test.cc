// Configurations: every key, overrides, and the errors of invalid ones.
#include "core/config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>

namespace adaptive_train::config_test {
namespace {

using testing::ContainsRegex;
using testing::HasSubstr;

class ConfigTest : public testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = (std::filesystem::temp_directory_path() / "config_test.XXXXXX").string();
    ASSERT_NE(::mkdtemp(pattern.data()), nullptr);
    folder_ = pattern;
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  std::string File(const std::string& text) {
    const std::string path = folder_ + "/config.toml";
    std::ofstream(path) << text;
    return path;
  }
  std::string ErrorOf(const std::string& text, const std::vector<ConfigOverride>& overrides = {}) {
    auto config = LoadConfig(File(text), overrides);
    if (config) return "accepted";
    EXPECT_EQ(config.error().exit_code, ExitCode::kUsage);
    EXPECT_EQ(config.error().message.find('\n'), std::string::npos);
    return config.error().message;
  }

  std::string folder_;
};

constexpr const char* kMinimal = "[data]\ntrain = \"text\"\n";

TEST_F(ConfigTest, TakesDefaultsAndPathsRelativeToTheFile) {
  auto config = LoadConfig(File(kMinimal), {});
  ASSERT_TRUE(config) << config.error().message;
  EXPECT_EQ(config->data.train, folder_ + "/text");
  EXPECT_EQ(config->data.validation, "auto");
  EXPECT_EQ(config->train.steps, 100);
  EXPECT_FALSE(config->parallel.data.has_value());
}

TEST_F(ConfigTest, WhatIsPrintedReadsBackTheSame) {
  auto config = LoadConfig(File(kMinimal), {{"optimizer.lr", "3e-05"},
                                            {"optimizer.betas", "[0.8, 0.999]"},
                                            {"parallel.data", "3"},
                                            {"data.train", "a \"quoted\\ name"},
                                            {"model.tie_embeddings", "false"},
                                            {"parallel.shares", "even"},
                                            {"profile.online", "true"},
                                            {"optimizer.clip", "2"}});
  ASSERT_TRUE(config) << config.error().message;
  const std::string text = ToToml(*config);
  auto again = LoadConfig(File(text), {});
  ASSERT_TRUE(again) << again.error().message;
  EXPECT_EQ(ToToml(*again), text);
  EXPECT_DOUBLE_EQ(again->optimizer.lr, 3e-5);
  EXPECT_DOUBLE_EQ(again->optimizer.beta2, 0.999);
  EXPECT_EQ(again->parallel.data, 3);
  EXPECT_FALSE(again->model.tie_embeddings);
  EXPECT_EQ(again->parallel.shares, "even");
  EXPECT_TRUE(again->profile.online);
}

TEST_F(ConfigTest, LlamasRelativesAreSaidInFullAndComeBack) {
  auto config = LoadConfig(File(kMinimal), {{"model.kind", "llama"},
                                            {"model.kv_heads", "2"},
                                            {"model.head_size", "48"},
                                            {"model.attention_bias", "qkv"},
                                            {"model.norm_epsilon", "1e-6"},
                                            {"model.rope_base", "500000"},
                                            {"model.rope_scaling", "llama3"},
                                            {"model.rope_factor", "32"},
                                            {"model.rope_original_sequence", "64"},
                                            {"model.sliding_window", "128"}});
  ASSERT_TRUE(config) << config.error().message;
  auto again = LoadConfig(File(ToToml(*config)), {});
  ASSERT_TRUE(again) << again.error().message;
  EXPECT_EQ(ToToml(*again), ToToml(*config));
  const ModelDims dims = DimsOf(again->model);
  EXPECT_EQ(dims.HeadSize(), 48);
  EXPECT_TRUE(dims.HasQkvBias());
  EXPECT_FALSE(dims.HasProjectionBias());
  EXPECT_EQ(dims.NormEpsilon(), 1e-6);
  EXPECT_EQ(dims.rope_base, 500000);
  EXPECT_EQ(dims.rope_scaling, (RopeScaling{32, 1, 4, 64}));
  EXPECT_EQ(dims.sliding_window, 128);
  again->model.kv_heads = dims.KvHeads();
  again->model.ffn = dims.Ffn();
  Config same = *again;
  same.model = ConfigOf(dims);
  EXPECT_EQ(ToToml(same), ToToml(*again));
}

TEST_F(ConfigTest, WhatLlamasRelativesCannotBeIsTold) {
  const std::string data = "[data]\ntrain = \"text\"\n[model]\nkind = \"llama\"\n";
  EXPECT_THAT(ErrorOf(data, {{"model.sliding_window", "100"}}),
              HasSubstr("model.sliding_window = 100: a sequence that is longer"));
  EXPECT_THAT(ErrorOf(data, {{"model.rope_scaling", "yarn"}}),
              HasSubstr("model.rope_scaling must be one of \"none\", \"llama3\""));
  EXPECT_THAT(ErrorOf(data, {{"model.norm_epsilon", "0"}}),
              HasSubstr("model.norm_epsilon must be \"auto\" or a number from"));
  EXPECT_THAT(ErrorOf(data, {{"model.kind", "gpt2"}, {"model.attention_bias", "qkv"}}),
              HasSubstr("model.attention_bias is set: only model.kind = llama has it, not gpt2"));
}

TEST_F(ConfigTest, TheGuideNamesEveryKeyUnderItsSection) {
  std::ifstream file(std::string(SOURCE_DIR) + "/docs/configuration.md");
  const std::string text((std::istreambuf_iterator<char>(file)), {});
  std::istringstream lines(ToToml(Config{}));
  std::string section;
  for (std::string line; std::getline(lines, line);) {
    if (line.starts_with("[")) section = line;
    const auto equals = line.find(" = ");
    if (equals == std::string::npos || section.empty()) continue;
    const auto at = text.find("\n## " + section);
    ASSERT_NE(at, std::string::npos) << section;
    EXPECT_THAT(text.substr(at, text.find("\n## ", at + 1) - at),
                ContainsRegex("`" + line.substr(0, equals) + "[` ]"))
        << section;
  }
}

TEST_F(ConfigTest, TheGuidesExamplesAreAccepted) {
  std::ifstream file(std::string(SOURCE_DIR) + "/docs/configuration.md");
  const std::string text((std::istreambuf_iterator<char>(file)), {});
  int examples = 0;
  for (auto at = text.find("```toml\n"); at != std::string::npos; at = text.find("```toml\n", at)) {
    at += 8;
    const std::string example = text.substr(at, text.find("```", at) - at);
    EXPECT_EQ(ErrorOf(example, {{"data.train", "text"}}), "accepted") << example;
    ++examples;
  }
  EXPECT_GE(examples, 3);
}

TEST_F(ConfigTest, TheExampleHasEveryKeyAndIsAccepted) {
  const std::string example = std::string(SOURCE_DIR) + "/examples/quickstart.toml";
  auto config = LoadConfig(example, {});
  ASSERT_TRUE(config) << config.error().message;
  std::ifstream file(example);
  const std::string text((std::istreambuf_iterator<char>(file)), {});
  // Every line "key = value" of the printed form is in the example, in the same section.
  std::istringstream lines(ToToml(*config));
  std::string section;
  for (std::string line; std::getline(lines, line);) {
    if (line.rfind("[", 0) == 0) section = line;
    const auto equals = line.find(" = ");
    if (equals == std::string::npos) continue;
    const auto at = section.empty() ? 0 : text.find(section);
    ASSERT_NE(at, std::string::npos) << section;
    const auto end = text.find("\n[", at);
    EXPECT_THAT(text.substr(at, end - at), HasSubstr("\n" + line.substr(0, equals) + " = "))
        << section;
  }
}

TEST_F(ConfigTest, OverridesCountLastAndAreRelativeToTheWorkingDirectory) {
  auto config = LoadConfig(File(kMinimal), {{"train.steps", "7"},
                                            {"train.steps", "8"},
                                            {"data.train", "other"},
                                            {"train.micro_batch", "auto"}});
  ASSERT_TRUE(config) << config.error().message;
  EXPECT_EQ(config->train.steps, 8);
  EXPECT_EQ(config->data.train, (std::filesystem::current_path() / "other").string());
}

TEST_F(ConfigTest, RefusesInOneLine) {
  const std::string data = kMinimal;
  EXPECT_THAT(ErrorOf(data + "[train]\nstepz = 3\n"),
              HasSubstr("line 4: unknown key train.stepz; the nearest is train.steps"));
  EXPECT_THAT(ErrorOf("steps = 3\n" + data), HasSubstr("unknown key steps outside of a section"));
  EXPECT_THAT(ErrorOf(data + "[train]\nsteps = \"3\"\n"),
              HasSubstr("train.steps must be an integer, 1 or more"));
  EXPECT_THAT(ErrorOf(data + "[train]\nsteps = 3.5\n"),
              HasSubstr("train.steps must be an integer"));
  EXPECT_THAT(ErrorOf(data + "[train]\nsteps = 9223372036854775807\n"),
              HasSubstr("train.steps must be an integer"));
  EXPECT_THAT(ErrorOf(data + "[optimizer]\nbetas = [0.9]\n"),
              HasSubstr("optimizer.betas must be two numbers"));
  EXPECT_THAT(ErrorOf(data + "[optimizer]\nlr = nan\n"),
              HasSubstr("optimizer.lr must be a number"));
  EXPECT_THAT(ErrorOf(data + "[parallel]\ndata = 0\n"),
              HasSubstr("parallel.data must be \"auto\" or an integer from 1"));
  EXPECT_THAT(ErrorOf(data + "[model]\nhidden = 130\n"),
              HasSubstr("is not a multiple of model.heads"));
  EXPECT_THAT(ErrorOf(data + "format = \"bytes\"\n[model]\nvocab = 100\n"),
              HasSubstr("bytes need 256"));
  EXPECT_THAT(ErrorOf(""), HasSubstr("data.train is missing"));
  EXPECT_THAT(ErrorOf("[data\n"), HasSubstr("line 1"));
  EXPECT_THAT(ErrorOf("format_version = 2\n" + data), HasSubstr("format_version 2 is newer"));
  EXPECT_THAT(ErrorOf(data, {{"train.stepz", "3"}}), HasSubstr("the nearest is train.steps"));
  EXPECT_THAT(ErrorOf(data, {{"train.steps", "3\ny = 4"}}),
              HasSubstr("--train.steps: not a value"));
  EXPECT_THAT(ErrorOf(data, {{"model.kv_heads", "2"}}),
              HasSubstr("model.kv_heads = 2: gpt2 has as many as model.heads"));
  EXPECT_THAT(ErrorOf(data, {{"model.kind", "llama"}, {"model.kv_heads", "3"}}),
              HasSubstr("model.kv_heads = 3 does not divide model.heads"));
  EXPECT_THAT(ErrorOf(data, {{"parallel.interleave", "2"}, {"parallel.schedule", "gpipe"}}),
              HasSubstr("other schedules have one chunk per rank"));
  EXPECT_THAT(ErrorOf(data, {{"parallel.interleave", "2"}, {"parallel.schedule", "pipedream-2bw"}}),
              HasSubstr("other schedules have one chunk per rank"));
  EXPECT_THAT(ErrorOf(data, {{"parallel.layout", "Et|tx|L"}}),
              HasSubstr("config.toml: parallel.layout: stage layout, character 5, 'x'"));
  EXPECT_THAT(ErrorOf(data, {{"parallel.layout", "Et|tttL"}, {"parallel.pipeline", "3"}}),
              HasSubstr("parallel.layout has 2 stages: parallel.pipeline = 3 needs 3"));
  EXPECT_THAT(ErrorOf(data, {{"parallel.layout", "7"}}),
              HasSubstr("parallel.layout: stage layout, character 1, '7'"));
}

TEST_F(ConfigTest, RefusesLossScalesThatChangeWithinAStep) {
  const std::vector<ConfigOverride> late{{"parallel.schedule", "pipedream-2bw"}};
  EXPECT_THAT(ErrorOf(kMinimal, {late[0], {"train.precision", "fp16"}}),
              HasSubstr("needs train.precision = fp32 or bf16"));
}

// What cannot keep the same bits in any layout.
TEST_F(ConfigTest, RefusesWhatIsNotReproducible) {
  const std::string data = kMinimal;
  const auto error_of = [&](std::vector<ConfigOverride> more) {
    more.insert(more.begin(), {{"train.reproducible", "layout"}, {"train.global_batch", "6"}});
    return ErrorOf(data, more);
  };
  EXPECT_THAT(error_of({{"train.micro_batch", "2"}, {"train.precision", "bf16"}}),
              HasSubstr("train.reproducible = layout needs train.precision = fp32"));
  EXPECT_THAT(error_of({{"train.micro_batch", "2"}, {"compression.mode", "topk"}}),
              HasSubstr("train.reproducible = layout needs compression.mode = off"));
  EXPECT_THAT(error_of({{"train.micro_batch", "2"}, {"parallel.schedule", "pipedream-2bw"}}),
              HasSubstr("another parallel.schedule than \"pipedream-2bw\""));
  EXPECT_THAT(error_of({}), HasSubstr("needs train.micro_batch as a number"));
  EXPECT_THAT(error_of({{"train.micro_batch", "4"}}),
              HasSubstr("needs train.global_batch to be a multiple of train.micro_batch"));
  EXPECT_THAT(error_of({{"train.reproducible", "yes"}}),
              HasSubstr("train.reproducible must be one of \"off\", \"layout\""));
}

TEST_F(ConfigTest, LocalStepsNeedWholeReplicas) {
  for (const char* key : {"parallel.pipeline", "parallel.tensor"})
    EXPECT_THAT(ErrorOf(kMinimal, {{"compression.mode", "local"}, {key, "2"}}),
                HasSubstr("compression.mode = \"local\" needs whole replicas"));
  for (const auto& [key, value] : {std::pair("parallel.shard", "1"),
                                   {"parallel.schedule", "pipedream-2bw"},
                                   {"parallel.layout", "Ett|ttL"}})
    EXPECT_THAT(ErrorOf(kMinimal, {{"compression.mode", "local"}, {key, value}}),
                HasSubstr("compression.mode = \"local\" needs whole replicas"))
        << key;
}

TEST_F(ConfigTest, ValuesThatAreLeftOpenFollowTheMode) {
  Config config;
  for (const auto& [mode, values] : {std::pair(CompressionMode::kAuto, ValueEncoding::kInt4),
                                     {CompressionMode::kTopk, ValueEncoding::kBf16},
                                     {CompressionMode::kVarianceTopk, ValueEncoding::kBf16}}) {
    config.compression.mode = mode;
    EXPECT_EQ(OrdersOf(config).compression.values, values) << NameOf(mode);
  }
  config.compression.mode = CompressionMode::kAuto;
  config.compression.values = ValueEncoding::kFp8;
  EXPECT_EQ(OrdersOf(config).compression.values, ValueEncoding::kFp8);
}

TEST_F(ConfigTest, ReproducibleRunsCompressNothing) {
  Config config;
  config.compression.mode = CompressionMode::kAuto;
  EXPECT_EQ(OrdersOf(config).compression.mode, CompressionMode::kAuto);
  config.train.reproducible = Reproducible::kLayout;
  EXPECT_EQ(OrdersOf(config).compression.mode, CompressionMode::kOff);
  EXPECT_TRUE(OrdersOf(config).AnyLayout());
}

TEST_F(ConfigTest, RefusesFilesThatAreNone) {
  auto missing = LoadConfig(folder_ + "/none.toml", {});
  ASSERT_FALSE(missing);
  EXPECT_THAT(missing.error().message, HasSubstr("none.toml: No such file"));
  auto directory = LoadConfig(folder_, {});
  ASSERT_FALSE(directory);
  EXPECT_THAT(directory.error().message, HasSubstr("not a regular file"));
  auto huge = LoadConfig(File(std::string(2 << 20, '#')), {});
  ASSERT_FALSE(huge);
  EXPECT_THAT(huge.error().message, HasSubstr("larger than"));
}

}  // namespace
}  // namespace adaptive_train::config_test
