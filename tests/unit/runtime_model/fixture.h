// Losses and gradients of tiny models, computed once by PyTorch: fixtures/make_fixtures.py creates
// the files.
#pragma once

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <string>
#include <vector>

#include "core/model_shape.h"
#include "runtime/model/parameter_layout.h"

namespace adaptive_train {

struct Fixture {
  ModelDims dims;
  std::int64_t batch = 0;
  std::vector<std::int32_t> tokens;   // [batch, sequence]
  std::vector<std::int32_t> targets;  // [batch, sequence]; negative ones are skipped
  std::vector<double> parameters;     // in the order of the whole model's arena
  std::vector<double> gradients;      // of loss_sum, in the same order
  double loss_sum = 0;                // nats, over all targets that are not skipped

  /// "gpt2", "llama" or "bert". Throws a std::exception, also if names or shapes differ from the
  /// layout's.
  static Fixture Load(const std::string& name);
};

inline ModelDims FixtureDims(const nlohmann::json& json) {
  const std::string kind = json.at("kind").get<std::string>();
  ModelDims dims;
  dims.kind = kind == "llama"  ? ModelKind::kLlama
              : kind == "bert" ? ModelKind::kBert
                               : ModelKind::kGpt2;
  json.at("layers").get_to(dims.layers);
  json.at("heads").get_to(dims.heads);
  json.at("kv_heads").get_to(dims.kv_heads);
  json.at("hidden").get_to(dims.hidden);
  json.at("ffn").get_to(dims.ffn);
  json.at("sequence").get_to(dims.sequence);
  json.at("vocab").get_to(dims.vocab);
  json.at("tie_embeddings").get_to(dims.tie_embeddings);
  return dims;
}

inline Fixture Fixture::Load(const std::string& name) {
  const std::filesystem::path path =
      SOURCE_DIR "/tests/unit/runtime_model/fixtures/" + name + ".json";
  std::ifstream file(path);
  if (!file) throw std::runtime_error(path.string() + " cannot be read");
  const nlohmann::json json = nlohmann::json::parse(file);
  Fixture fixture;
  fixture.dims = FixtureDims(json.at("dims"));
  json.at("batch").get_to(fixture.batch);
  json.at("tokens").get_to(fixture.tokens);
  json.at("targets").get_to(fixture.targets);
  json.at("loss_sum").get_to(fixture.loss_sum);

  const ParameterLayout layout(fixture.dims, StageSlice::Whole(fixture.dims));
  const nlohmann::json& parameters = json.at("parameters");
  if (parameters.size() != layout.ranges().size())
    throw std::runtime_error(path.string() + ": other parameters");
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    const ParameterRange& range = layout.ranges()[i];
    if (parameters[i].at("name") != range.name || parameters[i].at("shape") != range.shape) {
      throw std::runtime_error(path.string() + ": " + range.name +
                               " is not where the layout has it");
    }
    for (double value : parameters[i].at("values")) fixture.parameters.push_back(value);
    for (double value : parameters[i].at("gradients")) fixture.gradients.push_back(value);
  }
  return fixture;
}

}  // namespace adaptive_train
