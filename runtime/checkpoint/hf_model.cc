#include "runtime/checkpoint/hf_model.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cassert>
#include <filesystem>

#include "core/file_io.h"
#include "runtime/checkpoint/hf_config.h"
#include "runtime/checkpoint/hf_names.h"
#include "runtime/checkpoint/hf_weights.h"
#include "runtime/checkpoint/safetensors.h"
#include "runtime/model/parameter_layout.h"

namespace adaptive_train {
namespace {

constexpr std::size_t kMaxConfigBytes = std::size_t{1} << 20;

/// Theirs may have more rows than we keep, in two tables: positions beyond the sequence, and token
/// types beyond the one that we add.
bool MayHaveMoreRows(const std::string& name) {
  return name.ends_with("wpe.weight") || name.ends_with("position_embeddings.weight") ||
         name.ends_with("token_type_embeddings.weight");
}

/// Untrusted dimensions decide how much memory is asked for: the tensors must have at least the
/// elements of the largest matrices.
Result<void> CheckSize(const ModelDims& dims, const HfWeights& weights) {
  const auto hidden = static_cast<double>(dims.hidden);
  const double least = static_cast<double>(dims.layers) * hidden *
                           static_cast<double>(dims.AttentionColumns() + dims.Ffn()) +
                       static_cast<double>(dims.vocab) * hidden;
  if (least <= weights.Elements()) return {};
  return Fail(
      fmt::format("a model of more than {:.3g} parameters; the tensors have {:.3g} elements", least,
                  weights.Elements()));
}

Result<void> ReadTensor(HfWeights& weights, const HfTensor& tensor, std::span<float> arena) {
  auto name = weights.Find(HfNamesOf(tensor.name));
  if (!name) return tl::unexpected(name.error());
  std::vector<std::int64_t> shape = tensor.shape;
  if (MayHaveMoreRows(tensor.name)) {
    const auto& theirs = weights.ShapeOf(*name);
    if (theirs.size() == 2 && theirs[0] > shape[0]) shape[0] = theirs[0];
  }
  auto values = weights.Read(*name, shape);
  if (!values) return tl::unexpected(values.error());
  tensor.CopyIn(*values, arena);
  return {};
}

std::vector<std::string> Notes(const HfConfig& config, const HfWeights& weights) {
  std::vector<std::string> notes;
  if (config.token_types > 1) {
    notes.push_back(
        fmt::format("token types: row 0 of {} is added to every token, the others are left out",
                    config.token_types));
  }
  if (config.dims.sequence < config.positions) {
    notes.push_back(
        fmt::format("positions: the first {} of {}", config.dims.sequence, config.positions));
  }
  auto unread = weights.Unread();
  if (unread.empty()) return notes;
  const std::size_t count = unread.size();
  if (count > 3) {
    unread.resize(3);
    unread.push_back("...");
  }
  notes.push_back(Printable(fmt::format("{} tensor{} not part of the model: {}", count,
                                        count == 1 ? " is" : "s are", fmt::join(unread, ", "))));
  return notes;
}

}  // namespace

Result<void> WriteHfModel(const std::string& folder, const ModelDims& dims,
                          std::span<const float> parameters) {
  if (dims.kind != ModelKind::kLlama && dims.KvHeads() != dims.heads) {
    return Fail(fmt::format(
        "model.kv_heads = {}: only llama has fewer than model.heads = {} in transformers",
        dims.KvHeads(), dims.heads));
  }
  if (dims.sliding_window > 0 && dims.HasProjectionBias()) {
    return Fail(fmt::format(
        "model.sliding_window = {}: no model of transformers has it beside model.attention_bias = "
        "all; allowed are none and qkv",
        dims.sliding_window));
  }
  auto made = MakeFolder(folder);
  if (!made) return made;
  for (const char* file :
       {"config.json", "model.safetensors", "model.safetensors.index.json", "tokenizer.model"}) {
    std::error_code ignored;
    if (std::filesystem::exists(folder + "/" + file, ignored)) {
      return Fail(fmt::format("{}: holds {} already; name another folder", folder, file));
    }
  }
  const ParameterLayout layout(dims, StageSlice::Whole(dims));
  assert(static_cast<std::int64_t>(parameters.size()) == layout.size());
  std::vector<TensorSource> sources;
  for (const HfTensor& tensor : HfTensors(dims, layout)) {
    sources.push_back({tensor.name, tensor.shape, [tensor, parameters](std::span<float> values) {
                         tensor.CopyOut(parameters, values);
                       }});
  }
  auto written = WriteSafetensors(folder + "/model.safetensors", sources);
  if (!written) return written;
  return WriteFile(folder + "/config.json", HfConfigText(dims));
}

Result<HfModel> ReadHfModel(const std::string& folder, std::optional<std::int64_t> sequence) {
  const std::string config_path = folder + "/config.json";
  auto text = ReadFile(config_path, kMaxConfigBytes);
  if (!text) return tl::unexpected(text.error());
  auto config = ParseHfConfig(*text, sequence);
  if (!config) return FailIn(config_path, config.error());
  HfModel model;
  model.dims = config->dims;
  auto weights = HfWeights::Open(folder);
  if (!weights) return tl::unexpected(weights.error());

  auto fits = CheckSize(model.dims, *weights);
  if (!fits) return FailIn(config_path, fits.error());

  const ParameterLayout layout(model.dims, StageSlice::Whole(model.dims));
  model.parameters.resize(static_cast<std::size_t>(layout.size()));
  for (const HfTensor& tensor : HfTensors(model.dims, layout)) {
    auto read = ReadTensor(*weights, tensor, model.parameters);
    if (!read) return tl::unexpected(read.error());
  }
  model.notes = Notes(*config, *weights);
  return model;
}

}  // namespace adaptive_train
