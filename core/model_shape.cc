// Counting a GPT-2 model's parameters, products and bytes.
#include "core/model_shape.h"

#include <fmt/format.h>

#include <array>
#include <utility>

namespace adaptive_train {
namespace {

constexpr std::int64_t kFloatBytes = 4;
constexpr std::int64_t kTokenBytes = 4;
/// Far above any model that fits a machine, far below overflow of a product of three.
constexpr std::int64_t kMaxDimension = 1 << 20;

LayerShape Counted(std::string name, std::int64_t parameters, double flops,
                   std::int64_t activation_bytes) {
  LayerShape layer;
  layer.name = std::move(name);
  layer.parameters = parameters;
  layer.forward_flops_per_token = flops;
  layer.parameter_bytes = parameters * kFloatBytes;
  layer.gradient_bytes = parameters * kFloatBytes;
  layer.optimizer_bytes = parameters * 2 * kFloatBytes;
  layer.activation_bytes_per_sample = activation_bytes;
  return layer;
}

LayerShape Embedding(const ModelDims& dims) {
  const std::int64_t per_token = dims.hidden * kFloatBytes + kTokenBytes;
  return Counted("embedding", (dims.vocab + dims.sequence) * dims.hidden, 0,
                 dims.sequence * per_token);
}

LayerShape Block(const ModelDims& dims, std::int64_t index) {
  const std::int64_t hidden = dims.hidden;
  const std::int64_t weights = 12 * hidden * hidden;  // qkv 3, projection 1, feed-forward 4 + 4
  const std::int64_t vectors = 13 * hidden;           // biases 3 + 1 + 4 + 1, two norms of two
  const double attention = 4.0 * static_cast<double>(dims.sequence) * static_cast<double>(hidden);
  // Two norms' outputs, qkv 3, attention, mid, output, two of the feed-forward's 4; two values a
  // norm, one a head.
  const std::int64_t per_token = 16 * hidden + 4 + dims.heads;
  return Counted(fmt::format("h.{}", index), weights + vectors,
                 2.0 * static_cast<double>(weights) + attention,
                 dims.sequence * per_token * kFloatBytes);
}

LayerShape Head(const ModelDims& dims) {
  const std::int64_t weight = dims.vocab * dims.hidden;
  const std::int64_t per_token = (dims.hidden + 2 + dims.vocab + 1) * kFloatBytes + kTokenBytes;
  return Counted("head", 2 * dims.hidden + (dims.tie_embeddings ? 0 : weight),
                 2.0 * static_cast<double>(weight), dims.sequence * per_token);
}

}  // namespace

Result<void> CheckDims(const ModelDims& dims) {
  const std::array<std::pair<const char*, std::int64_t>, 5> all{{{"layers", dims.layers},
                                                                 {"heads", dims.heads},
                                                                 {"hidden", dims.hidden},
                                                                 {"sequence", dims.sequence},
                                                                 {"vocab", dims.vocab}}};
  for (const auto& [key, value] : all) {
    if (value < 1 || value > kMaxDimension) {
      return Fail(fmt::format("model.{} = {}: allowed are 1 to {}", key, value, kMaxDimension));
    }
  }
  if (dims.hidden % dims.heads != 0) {
    return Fail(fmt::format("model.hidden = {} is not a multiple of model.heads = {}", dims.hidden,
                            dims.heads));
  }
  return {};
}

ModelShape ModelShape::Of(const ModelDims& dims) {
  ModelShape shape;
  shape.dims = dims;
  shape.layers.push_back(Embedding(dims));
  for (std::int64_t i = 0; i < dims.layers; ++i) shape.layers.push_back(Block(dims, i));
  shape.layers.push_back(Head(dims));
  shape.workspace_bytes_per_sample = dims.sequence * 6 * dims.hidden * kFloatBytes;

  shape.total = Counted("total", 0, 0, shape.workspace_bytes_per_sample);
  for (const LayerShape& layer : shape.layers) {
    shape.total.parameters += layer.parameters;
    shape.total.forward_flops_per_token += layer.forward_flops_per_token;
    shape.total.parameter_bytes += layer.parameter_bytes;
    shape.total.gradient_bytes += layer.gradient_bytes;
    shape.total.optimizer_bytes += layer.optimizer_bytes;
    shape.total.activation_bytes_per_sample += layer.activation_bytes_per_sample;
  }
  return shape;
}

}  // namespace adaptive_train
