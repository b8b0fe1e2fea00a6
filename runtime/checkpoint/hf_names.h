// Which tensors of a Hugging Face model are which part of our parameters.
//
// The names are those of transformers' GPT2LMHeadModel, LlamaForCausalLM (which MistralForCausalLM
// and Qwen2ForCausalLM share) and BertForMaskedLM.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "core/model_shape.h"
#include "runtime/model/parameter_layout.h"

namespace adaptive_train {

/// One of their tensors: columns [first_column, first_column + columns) of our parameter, taken as
/// [rows, row_length], where a vector is one row. Their Linear keeps weights as [out, in], so those
/// are transposed; GPT-2's Conv1D and embeddings are as ours.
struct HfTensor {
  std::string name;
  std::vector<std::int64_t> shape;
  std::int64_t offset = 0;  // of our parameter in the whole model's arena
  std::int64_t rows = 0;
  std::int64_t row_length = 0;
  std::int64_t first_column = 0;
  std::int64_t columns = 0;
  bool transposed = false;

  /// Between their tensor's elements, in its order, and the whole model's arena.
  void CopyOut(std::span<const float> arena, std::span<float> tensor) const;
  void CopyIn(std::span<const float> tensor, std::span<float> arena) const;
};

/// All tensors of a model whose dimensions CheckDims accepts; together they are every element of
/// `layout`, which is the whole model's, once.
std::vector<HfTensor> HfTensors(const ModelDims& dims, const ParameterLayout& layout);

/// Names under which older or bare checkpoints have the same tensor: without the model's prefix,
/// gamma and beta of BERT's norms. Begins with `name`.
std::vector<std::string> HfNamesOf(const std::string& name);

}  // namespace adaptive_train
