// What a model of given dimensions is made of: parameters, FLOPs and bytes, layer by layer.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/result.h"

namespace adaptive_train {

/// The dimensions of a GPT-2 model (Radford et al. 2019): learned positions, pre-norm blocks, GELU.
struct ModelDims {
  std::int64_t layers = 0;
  std::int64_t heads = 0;
  std::int64_t hidden = 0;    // a multiple of heads
  std::int64_t sequence = 0;  // tokens of one sample
  std::int64_t vocab = 0;
  bool tie_embeddings = true;  // the head uses the token embedding's weights
};

/// Fails in one line, naming the key of the configuration, where no such model can be built.
Result<void> CheckDims(const ModelDims& dims);

/// Counts of one layer, or of all. Bytes are those of float32 training with AdamW.
struct LayerShape {
  std::string name;  // "embedding", "h.0", ..., "head"
  std::int64_t parameters = 0;
  double forward_flops_per_token =
      0;  // 2 per multiply-add of the products; backward costs twice this
  std::int64_t parameter_bytes = 0;
  std::int64_t gradient_bytes = 0;
  std::int64_t optimizer_bytes = 0;              // both moments
  std::int64_t activation_bytes_per_sample = 0;  // kept from forward to backward
};

/// A model as the planner sees it. A value.
struct ModelShape {
  ModelDims dims;
  std::vector<LayerShape> layers;               // embedding, blocks in order, head
  LayerShape total;                             // name "total"; activations include the workspace
  std::int64_t workspace_bytes_per_sample = 0;  // of backward, shared by the layers

  /// Counts for dimensions that CheckDims accepts. Attention counts all sequence x sequence
  /// products, as is customary, though the causal mask lets kernels leave out nearly half.
  static ModelShape Of(const ModelDims& dims);

  /// Forward and backward: three times the forward products.
  double TrainFlopsPerToken() const { return 3 * total.forward_flops_per_token; }
};

}  // namespace adaptive_train
