// hf_logits FOLDER TOKEN...: the logits of a model in a Hugging Face folder, as import reads it and
// a rank computes it in float32 on the CPU. Prints a JSON array with a row for each token.
#include <fmt/format.h>

#include <charconv>
#include <cstring>
#include <nlohmann/json.hpp>
#include <vector>

#include "kernels/cpu/cpu_device.h"
#include "runtime/checkpoint/hf_model.h"
#include "runtime/model/transformer_stage.h"

namespace adaptive_train {
namespace {

Result<nlohmann::json> LogitsOf(const char* folder, const std::vector<std::int32_t>& tokens) {
  const auto sequence = static_cast<std::int64_t>(tokens.size());
  auto model = ReadHfModel(folder, sequence);
  if (!model) return tl::unexpected(model.error());
  const ModelDims& dims = model->dims;
  for (const std::int32_t token : tokens) {
    if (token < 0 || token >= dims.vocab)
      return Fail(fmt::format("token {}: allowed are 0 to {}", token, dims.vocab - 1));
  }
  kernels::cpu::CpuDevice<float> device(1);
  std::vector<float> gradients(model->parameters.size());
  const ParameterLayout layout(dims, StageSlice::Whole(dims));
  StageWorkspace<float> workspace(dims, true, {}, device);
  TransformerStage<float> stage(dims, StageSlice::Whole(dims), {}, device,
                                {layout, model->parameters, gradients}, workspace);
  MicroBatchState<float> state = stage.NewState();
  std::vector<float> logits(static_cast<std::size_t>(sequence * dims.vocab));
  stage.Logits(state, {tokens, {}, 1, {}}, logits.data());
  nlohmann::json rows = nlohmann::json::array();
  for (auto row = logits.begin(); row != logits.end(); row += dims.vocab)
    rows.push_back(std::vector<float>(row, row + dims.vocab));
  return rows;
}

int Main(int argc, char** argv) {
  std::vector<std::int32_t> tokens;
  for (int i = 2; i < argc; ++i) {
    std::int32_t token = 0;
    const char* end = argv[i] + std::strlen(argv[i]);
    if (std::from_chars(argv[i], end, token).ptr != end) {
      fmt::print(stderr, "hf_logits: {} is not a token's number\n", argv[i]);
      return 2;
    }
    tokens.push_back(token);
  }
  if (tokens.empty()) {
    fmt::print(stderr, "hf_logits FOLDER TOKEN...\n");
    return 2;
  }
  auto logits = LogitsOf(argv[1], tokens);
  if (!logits) {
    fmt::print(stderr, "hf_logits: {}\n", logits.error().message);
    return 1;
  }
  fmt::print("{}\n", logits->dump());
  return 0;
}

}  // namespace
}  // namespace adaptive_train

int main(int argc, char** argv) { return adaptive_train::Main(argc, argv); }
