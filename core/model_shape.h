// A model of given dimensions: parameters, FLOPs and bytes, layer by layer.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/result.h"
#include "core/rope_scaling.h"

namespace adaptive_train {

/// GPT-2 (Radford et al. 2019), Llama (Touvron et al. 2023), BERT (Devlin et al. 2019).
enum class ModelKind { kGpt2, kLlama, kBert };

/// As in the configuration: "gpt2", "llama", "bert".
const char* ToString(ModelKind kind);

/// The differences between the kinds.
struct Architecture {
  bool rms_norm = false;    // otherwise layer norm, which has a bias
  bool post_norm = false;   // norms after the residual sums, otherwise before the branches
  bool rotary = false;      // positions by rotation, otherwise learned
  bool gated = false;       // SwiGLU, otherwise GELU
  bool gelu_erf = false;    // GELU by the error function, otherwise its tanh form
  bool biases = false;      // of the products
  bool causal = false;      // predicts the next token; otherwise masked ones from both sides
  double norm_epsilon = 0;  // added to variances

  /// Lives as long as the program.
  static const Architecture& Of(ModelKind kind);
};

/// Which of attention's products have biases.
enum class AttentionBias {
  kOfKind,  // the kind's default: gpt2 and bert all, llama none
  kNone,
  kQkv,  // queries, keys and values
  kAll,  // and the output's projection
};

/// As in the configuration: "auto", "none", "qkv", "all".
const char* ToString(AttentionBias bias);

/// The dimensions of a model.
struct ModelDims {
  std::int64_t layers = 0;
  std::int64_t heads = 0;
  std::int64_t hidden = 0;    // a multiple of heads, unless head_size says otherwise
  std::int64_t sequence = 0;  // tokens of one sample
  std::int64_t vocab = 0;
  bool tie_embeddings = true;  // the head uses the token embedding's weights
  ModelKind kind = ModelKind::kGpt2;
  std::int64_t kv_heads = 0;   // divides heads; 0: as many as heads
  std::int64_t ffn = 0;        // width of the feed-forward; 0: the kind's default
  std::int64_t head_size = 0;  // 0: hidden / heads
  AttentionBias attention_bias = AttentionBias::kOfKind;
  double norm_epsilon = 0;  // added to variances; 0: the kind's default
  double rope_base = kRopeBase;
  RopeScaling rope_scaling = {};
  std::int64_t sliding_window = 0;  // tokens that attention sees, at least `sequence`; 0: all
  std::int64_t kv_ranks = 1;  // of a part: tensor ranks that share its head of keys and values

  std::int64_t KvHeads() const { return kv_heads == 0 ? heads : kv_heads; }
  std::int64_t HeadSize() const { return head_size == 0 ? hidden / heads : head_size; }
  /// Columns of attention's output, before its projection to hidden.
  std::int64_t AttentionColumns() const { return heads * HeadSize(); }
  /// 4 hidden; for Llama 8/3 hidden, rounded up to a multiple of 256.
  std::int64_t Ffn() const;
  /// Columns of the queries, keys and values that attention reads.
  std::int64_t QkvColumns() const { return (heads + 2 * KvHeads()) * HeadSize(); }
  /// Columns of the product that computes them: ranks that share a head compute parts of it.
  std::int64_t QkvProductColumns() const {
    return (heads * kv_ranks + 2 * KvHeads()) * HeadSize() / kv_ranks;
  }
  /// Columns of the feed-forward's first product; a gated one computes gate and up.
  std::int64_t FfnColumns() const { return (Architecture::Of(kind).gated ? 2 : 1) * Ffn(); }
  /// Whether so many tensor ranks can share the model: they divide heads and ffn, and they divide
  /// kv_heads, or several share each head of keys and values by its columns.
  bool CanBeSharedBy(std::int64_t ranks) const;
  /// What the largest of so many tensor ranks has, as a narrower model: its heads, its part of the
  /// feed-forward and of the vocabulary. CanBeSharedBy(ranks).
  ModelDims Part(std::int64_t ranks) const;
  bool HasQkvBias() const;
  bool HasProjectionBias() const;  // of attention's output
  double NormEpsilon() const;
};

/// The number of a sample's tokens that a masked model predicts: 15 %, rounded, at least 1 (Devlin
/// et al. 2019).
std::int64_t MaskedTargets(std::int64_t sequence);
/// The number of a sample's tokens that need logits.
std::int64_t TargetsPerSample(const ModelDims& dims);

/// A CPU computes logits for so many tokens at a time (kHeadLossRows of kernels/head_loss.h).
inline constexpr std::int64_t kHeadTokens = 512;

/// Fails in one line, naming the configuration's key, if no such model can be built.
Result<void> CheckDims(const ModelDims& dims);

/// The properties of a model that no parameter's shape shows: "model.kind = gpt2, model.heads = 4".
/// Defaults of the kind are left out. Heads come last, so that no identity is the prefix of
/// another.
std::string IdentityOf(const ModelDims& dims);

/// The precision of activations, of the weights that products read, and of what crosses stages.
/// Master weights, gradients and moments are always float32.
enum class Precision { kFp32, kBf16, kFp16 };

/// What backward recomputes instead of keeping it (Chen et al. 2016; Korthikanti et al. 2022).
enum class Recompute {
  kNone,
  kSelective,  // outputs of norms and activation functions: cheap to compute, a third or more of
               // the bytes
  kFull,       // all but each block's input
};

/// How a model is trained, as far as its memory depends on it.
struct TrainingFormat {
  Precision precision = Precision::kFp32;
  Recompute recompute = Recompute::kNone;
  bool dropout = false;
  std::int64_t row_ranks = 1;  // of a part: tensor ranks that share rows inside blocks
};

/// Counts of one layer, or of all.
struct LayerShape {
  std::string name;  // "embedding", "h.0", ..., "head"
  std::int64_t parameters = 0;
  double forward_flops_per_token =
      0;  // 2 per multiply-add of the products; backward costs twice this
  std::int64_t parameter_bytes = 0;  // as forward and backward read them
  std::int64_t gradient_bytes = 0;
  std::int64_t optimizer_bytes = 0;  // both moments, and float32 masters of 16-bit parameters
  std::int64_t activation_bytes_per_sample = 0;  // kept from forward to backward
  // What tensor ranks do not share (Shoeybi et al. 2019), so that each has it:
  std::int64_t whole_parameters = 0;
  double whole_work = 0;  // of forward and backward, as a share
  std::int64_t whole_activation_bytes_per_sample = 0;
  std::int64_t row_bytes_per_sample = 0;  // of these, what ranks share if they share rows
  /// Of the activations, one head's keys and values: tensor ranks that share it have all of them.
  std::int64_t kv_head_bytes_per_sample = 0;

  /// What one of so many tensor ranks has of parameters, and does of forward and backward. Shares.
  double PartOfParameters(std::int64_t ranks) const;
  double PartOfWork(std::int64_t ranks) const;
};

/// The part of one that has `whole` and shares the rest of 1 with others, `ranks` in all.
constexpr double PartOfOne(double whole, double ranks) { return whole + (1 - whole) / ranks; }

/// A model as the planner sees it. A value.
struct ModelShape {
  ModelDims dims;
  TrainingFormat format;
  std::vector<LayerShape> layers;               // embedding, blocks in order, head
  LayerShape total;                             // name "total"; activations include the workspace
  std::int64_t workspace_bytes_per_sample = 0;  // shared by the layers

  /// Counts for dimensions that CheckDims accepts. Attention counts all sequence x sequence
  /// products, as is customary, though the causal mask lets kernels skip nearly half.
  static ModelShape Of(const ModelDims& dims, const TrainingFormat& format = {});

  /// The memory of a rank on a CPU besides its layers and their workspace: the process itself, and
  /// scratch of the operations.
  std::int64_t ProcessBytes(std::int64_t micro_batch, std::int64_t threads) const;
  /// The peak memory of a rank on a CPU: parameters, gradients, moments, and the checkpoint
  /// snapshot of its part (one of `ranks`). Added are activations of a micro-batch and
  /// ProcessBytes.
  std::int64_t PeakBytes(std::int64_t micro_batch, std::int64_t ranks, std::int64_t threads) const;

  /// Forward and backward: three times the forward products. As is customary, recomputation is not
  /// counted.
  double TrainFlopsPerToken() const { return 3 * total.forward_flops_per_token; }
};

}  // namespace adaptive_train
