// The place of every parameter: named ranges in one flat arena, with the same offsets for
// parameters, gradients and optimizer state.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/model_shape.h"
#include "runtime/model/tensor_part.h"

namespace adaptive_train {

enum class LayerPart : std::uint8_t { kEmbedding, kBlock, kHead };
inline constexpr std::size_t kLayerParts = 3;

/// The part of a model that one stage, or one chunk of it, holds: blocks [first_block, last_block),
/// and possibly the ends.
struct StageSlice {
  std::int64_t first_block = 0;
  std::int64_t last_block = 0;
  bool has_embedding = false;
  bool has_head = false;

  /// `block` is used for kBlock only.
  bool Holds(LayerPart part, std::int64_t block) const;

  static StageSlice Whole(const ModelDims& dims) { return {0, dims.layers, true, true}; }
  /// Layers [first, end) of ModelShape::layers: embedding, blocks, head.
  static StageSlice OfLayers(const ModelDims& dims, std::int64_t first, std::int64_t end);
};

enum class InitialValue { kZeros, kOnes, kNormal };

/// How tensor ranks share a parameter.
enum class TensorSplit : std::uint8_t {
  kNone,  // each has all of it
  kColumns,
  kRows
};

/// One parameter, or a tensor rank's part of it. Offsets and counts are in elements. A parameter of
/// one dimension is a single row.
struct ParameterRange {
  std::string name;  // as in GPT-2's checkpoints: wte.weight, h.0.attn.c_attn.weight, ...
  std::vector<std::int64_t> shape;  // row-major; products take x[rows, in] times weight[in, out]
  std::int64_t offset = 0;          // in this stage's arena
  std::int64_t count = 0;
  std::int64_t global_offset = 0;  // of the whole parameter, in the arena of the whole model
  TensorSplit split = TensorSplit::kNone;
  ElementRange rows;               // of the whole parameter, that are here
  ElementRanges columns;           // the same; ascending, side by side in each row of the arena
  std::int64_t whole_rows = 0;     // of the whole parameter
  std::int64_t whole_columns = 0;  // of the whole parameter
  /// The lengths of what tensor ranks share alike: of a rank's queries, keys and values, or its gate
  /// and up. Side by side as the columns, also of one rank, which has those of the whole.
  std::vector<std::int64_t> column_runs;
  bool decay = false;  // takes weight decay: matrices do, vectors do not
  InitialValue initial = InitialValue::kZeros;
  double initial_std = 0;  // for kNormal
  LayerPart part = LayerPart::kEmbedding;
  std::int64_t block = 0;  // for kBlock
};

/// A run of the arena with the same weight decay.
struct DecayRun {
  std::int64_t begin = 0;
  std::int64_t end = 0;
  bool decay = false;
};

/// The arena of one rank: ranges in ascending order without gaps. Every kind of model has the same
/// names in the same order, without those it lacks (no bias if products or norms have none):
///   wte, wpe; BERT also wtt (its one token type) and ln_embedding
///   per block h.N: ln_1, attn.c_attn (queries, keys, values), attn.c_proj, ln_2, mlp.c_fc (gated:
///   gate, then up), mlp.c_proj; the norms stand before their branch, or after its residual sum
///   with post_norm ln_f, or BERT's head.dense, head.ln, head.bias[vocab]; lm_head.weight[vocab,
///   hidden] if the embeddings are not tied
/// With tied embeddings a rank with the head but not the embedding holds a copy of wte.weight, last
/// in its arena, which counts as the head's. The rank with the embedding has its state: it gets the
/// copy's gradient and gives the new weights (TiedEmbedding). A rank with both ends holds the
/// matrix once, also where they are of different chunks.
/// A value; any thread.
class ParameterLayout {
 public:
  /// Requires dimensions that CheckDims accepts and a slice within them.
  ParameterLayout(const ModelDims& dims, const StageSlice& slice)
      : ParameterLayout(dims, std::span(&slice, 1)) {}
  /// The chunks of a model that one rank holds; they do not overlap. Of a tensor rank it has the
  /// rank's part: `dims` are the whole model's, which PartOf must accept.
  ParameterLayout(const ModelDims& dims, std::span<const StageSlice> chunks,
                  const TensorPart& tensor = {});

  const TensorPart& tensor() const { return tensor_; }
  const std::vector<ParameterRange>& ranges() const { return ranges_; }
  /// The copy of the tied matrix, or nullptr.
  const ParameterRange* Copy() const { return has_copy_ ? &ranges_.back() : nullptr; }
  /// The same layout less the copy: what this rank has gradients to exchange, moments and
  /// checkpoints of.
  ParameterLayout WithoutCopy() const;
  /// Whether compressed gradients of a range are a selection of its elements. Vectors are small, and
  /// go whole. So does what all tensor ranks have alike, as each would select by what else it holds:
  /// what they have would differ.
  bool SelectsFrom(const ParameterRange& range) const {
    return range.shape.size() > 1 && (tensor_.ranks == 1 || range.split != TensorSplit::kNone);
  }
  /// Elements of the arena.
  std::int64_t size() const { return size_; }
  /// The range with that name, or nullptr.
  const ParameterRange* Find(std::string_view name) const;
  /// The offset of the range with that name; -1 if there is none.
  std::int64_t OffsetOf(std::string_view name) const;
  /// [begin, end) of the arena, cut into the longest runs of equal decay.
  std::vector<DecayRun> DecayRuns(std::int64_t begin, std::int64_t end) const;
  /// What of [begin, end) no lower tensor rank has as well. Over the tensor ranks together it is
  /// every element of the model once.
  ElementRanges OwnElements(std::int64_t begin, std::int64_t end) const;

 private:
  void Append(ParameterRange range);

  TensorPart tensor_;
  std::vector<ParameterRange> ranges_;
  std::int64_t size_ = 0;
  bool has_copy_ = false;
};

/// The elements [begin, end) of an arena that belong to one layer.
struct LayerElements {
  std::size_t begin = 0;
  std::size_t end = 0;
  std::size_t size() const { return end - begin; }
};

/// The layers of an arena: embedding, blocks in order, head. Ends that a rank does not hold are
/// empty; blocks that it does not hold are left out.
std::vector<LayerElements> LayersOf(const ParameterLayout& layout);
/// The layers of one of its chunks: 2 + blocks.
std::vector<LayerElements> LayersOf(const ParameterLayout& layout, const StageSlice& chunk);

/// Fills a host array with an arena's initial values: N(0, 0.02^2) for weights. Products that write into the
/// residual stream are scaled by 1 / sqrt(2 layers) as in GPT-2. Every element depends only on the
/// seed and its place in the whole model, so every layout starts from the same model, bit by bit.
template <class T>
void InitializeParameters(const ParameterLayout& layout, std::uint64_t seed,
                          std::span<T> parameters);
/// The same for elements [begin, end) of the arena: `values` has these alone.
template <class T>
void InitializeParameters(const ParameterLayout& layout, std::uint64_t seed, std::int64_t begin,
                          std::int64_t end, std::span<T> values);

}  // namespace adaptive_train
