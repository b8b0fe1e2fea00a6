// Counts a model's parameters, products and bytes.
#include "core/model_shape.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cassert>
#include <utility>

namespace adaptive_train {
namespace {

constexpr std::int64_t kFloatBytes = 4;
constexpr std::int64_t kTokenBytes = 4;
/// Far above any model that fits a machine, far below overflow of a product of three.
constexpr std::int64_t kMaxDimension = 1 << 20;

/// Bytes of an activation.
std::int64_t ScalarBytes(const TrainingFormat& format) {
  return format.precision == Precision::kFp32 ? 4 : 2;
}

/// Of the bytes of all rows, those of a rank that shares them.
std::int64_t OwnRows(const TrainingFormat& format, std::int64_t bytes) {
  return (bytes + format.row_ranks - 1) / format.row_ranks;
}

std::int64_t NormParameters(const ModelDims& dims) {
  return (Architecture::Of(dims.kind).rms_norm ? 1 : 2) * dims.hidden;
}

std::int64_t NormBytesPerToken(const ModelDims& dims) {
  return (Architecture::Of(dims.kind).rms_norm ? 1 : 2) * kFloatBytes;
}

/// Sums of the residual stream inside a block, and outputs of its norms, that backward needs.
std::int64_t ResidualSums(const ModelDims& dims) {
  return Architecture::Of(dims.kind).post_norm ? 2 : 1;
}
std::int64_t KeptNorms(const ModelDims& dims) {
  return Architecture::Of(dims.kind).post_norm ? 1 : 2;
}

/// Bytes per token that a block keeps of its products, and could recompute; the activation function
/// is the cheap part. Residual sums and norms come besides.
std::int64_t KeptBytesPerToken(const ModelDims& dims, std::int64_t scalar) {
  return (dims.QkvColumns() + dims.AttentionColumns() + dims.FfnColumns()) * scalar +
         dims.heads * kFloatBytes;
}

std::int64_t CheapBytesPerToken(const ModelDims& dims, std::int64_t scalar) {
  return dims.Ffn() * scalar;
}

LayerShape Counted(std::string name, const TrainingFormat& format, std::int64_t parameters,
                   double flops, std::int64_t activation_bytes) {
  LayerShape layer;
  layer.name = std::move(name);
  layer.parameters = parameters;
  layer.forward_flops_per_token = flops;
  const bool masters = format.precision != Precision::kFp32;
  layer.parameter_bytes = parameters * (masters ? ScalarBytes(format) : kFloatBytes);
  layer.gradient_bytes = parameters * kFloatBytes;
  layer.optimizer_bytes = parameters * (masters ? 3 : 2) * kFloatBytes;
  layer.activation_bytes_per_sample = activation_bytes;
  return layer;
}

LayerShape Embedding(const ModelDims& dims, const TrainingFormat& format) {
  const bool bert = dims.kind == ModelKind::kBert;
  const std::int64_t rows =
      dims.vocab + (Architecture::Of(dims.kind).rotary ? 0 : dims.sequence) + (bert ? 1 : 0);
  const std::int64_t stream = dims.hidden * ScalarBytes(format);
  const std::int64_t per_token = kTokenBytes + (bert ? stream + NormBytesPerToken(dims) : 0);
  const std::int64_t output = OwnRows(format, dims.sequence * stream);
  const std::int64_t norm = bert ? NormParameters(dims) : 0;
  LayerShape layer = Counted("embedding", format, rows * dims.hidden + norm, 0,
                             dims.sequence * per_token + output);
  layer.whole_parameters = (rows - dims.vocab) * dims.hidden + norm;
  layer.whole_work = 1;  // each rank writes all of the output
  layer.whole_activation_bytes_per_sample = layer.activation_bytes_per_sample;
  layer.row_bytes_per_sample = output;
  return layer;
}

LayerShape Block(const ModelDims& dims, const TrainingFormat& format, std::int64_t index) {
  const std::int64_t hidden = dims.hidden, scalar = ScalarBytes(format);
  const std::int64_t weights = hidden * (dims.QkvProductColumns() + dims.AttentionColumns() +
                                         dims.FfnColumns() + dims.Ffn());
  const std::int64_t biases = (dims.HasQkvBias() ? dims.QkvProductColumns() : 0) +
                              (dims.HasProjectionBias() ? hidden : 0) +
                              (Architecture::Of(dims.kind).biases ? dims.FfnColumns() + hidden : 0);
  const double attention =
      4.0 * static_cast<double>(dims.sequence) * static_cast<double>(dims.AttentionColumns());
  // Of the residual stream's width: the output, residual sums, and outputs of norms.
  std::int64_t whole = 2 * NormBytesPerToken(dims) + hidden * scalar, shared = 0;
  if (format.recompute != Recompute::kFull) {
    shared += KeptBytesPerToken(dims, scalar);
    whole += ResidualSums(dims) * hidden * scalar;
  }
  if (format.recompute == Recompute::kNone) {
    shared += CheapBytesPerToken(dims, scalar);
    whole += KeptNorms(dims) * hidden * scalar;
  }
  const std::int64_t rows = OwnRows(format, dims.sequence * whole);
  LayerShape layer =
      Counted(fmt::format("h.{}", index), format, weights + biases + 2 * NormParameters(dims),
              2.0 * static_cast<double>(weights) + attention, rows + dims.sequence * shared);
  layer.whole_parameters = 2 * NormParameters(dims) + (dims.HasProjectionBias() ? hidden : 0) +
                           (Architecture::Of(dims.kind).biases ? hidden : 0);
  layer.whole_activation_bytes_per_sample = layer.row_bytes_per_sample = rows;
  if (format.recompute != Recompute::kFull)
    layer.kv_head_bytes_per_sample = dims.sequence * 2 * dims.HeadSize() * scalar;
  return layer;
}

LayerShape Head(const ModelDims& dims, const TrainingFormat& format) {
  const bool bert = dims.kind == ModelKind::kBert;
  const std::int64_t weight = dims.vocab * dims.hidden;
  const std::int64_t dense = bert ? dims.hidden * dims.hidden : 0;
  const std::int64_t per_token = (bert ? 4 : 2) * dims.hidden * ScalarBytes(format) +
                                 NormBytesPerToken(dims) + kFloatBytes + kTokenBytes;
  const std::int64_t parameters = NormParameters(dims) +
                                  (bert ? dense + dims.hidden + dims.vocab : 0) +
                                  (dims.tie_embeddings ? 0 : weight);
  // Only targets need logits.
  const double predicted =
      static_cast<double>(TargetsPerSample(dims)) / static_cast<double>(dims.sequence);
  const double flops = 2.0 * (predicted * static_cast<double>(weight) + static_cast<double>(dense));
  LayerShape layer = Counted("head", format, parameters, flops, dims.sequence * per_token);
  layer.whole_parameters = NormParameters(dims) + (bert ? dense + dims.hidden : 0);
  layer.whole_work = 2.0 * static_cast<double>(dense) / flops;
  layer.whole_activation_bytes_per_sample = layer.activation_bytes_per_sample;
  return layer;
}

std::int64_t WorkspaceBytes(const ModelDims& dims, const TrainingFormat& format) {
  const std::int64_t scalar = ScalarBytes(format);
  const std::int64_t stream = OwnRows(format, dims.sequence * dims.hidden * scalar);
  std::int64_t per_token = std::max(dims.QkvColumns(), dims.FfnColumns()) * scalar, streams = 1;
  if (Architecture::Of(dims.kind).gated) per_token += dims.Ffn() * scalar;
  if (dims.kv_ranks > 1) per_token += dims.QkvProductColumns() * scalar;
  if (format.row_ranks > 1) per_token += dims.hidden * scalar;
  if (format.dropout) ++streams;
  if (format.recompute == Recompute::kFull) {
    per_token += KeptBytesPerToken(dims, scalar);
    streams += ResidualSums(dims);
  }
  if (format.recompute != Recompute::kNone) {
    per_token += CheapBytesPerToken(dims, scalar);
    streams += KeptNorms(dims);
  }
  return dims.sequence * per_token + streams * stream +
         std::max(stream, dims.sequence * dims.AttentionColumns() * scalar);
}

/// The size of a rank's process before it has a model: libraries and transports, measured with tiny
/// models. tests/bench/memory_prediction compares the sum with what runs need.
constexpr std::int64_t kProcessBytes = std::int64_t{20} << 20;

std::int64_t RoundedUp(std::int64_t value, std::int64_t step) {
  return (value + step - 1) / step * step;
}

// As in kernels/cpu/panels.h. Packed 16-bit parts for a matrix unit need more than panels of
// floats.
constexpr std::int64_t kStripColumns = 384, kPanelRows = 384, kRowsAtATime = 192;
constexpr std::int64_t kStripPackedSize = (kStripColumns + kRowsAtATime) * kPanelRows * 3 / 2;

std::int64_t StripRows(std::int64_t rows, std::int64_t columns, std::int64_t threads) {
  const std::int64_t across =
      std::max<std::int64_t>(1, RoundedUp(columns, kStripColumns) / kStripColumns);
  const std::int64_t down = threads == 1 ? 1 : (2 * threads + across - 1) / across;
  return std::clamp<std::int64_t>(RoundedUp((rows + down - 1) / down, 96), 96, 1024);
}

/// The scratch of kernels/cpu for a product of [rows, inner] and [inner, columns]. Each thread has
/// packed operands and a strip of sums. With 16-bit scalars on vectors, the first operand is copied
/// as float32.
std::int64_t ProductScratch(std::int64_t rows, std::int64_t inner, std::int64_t columns,
                            std::int64_t threads, bool widens) {
  return threads * (kStripPackedSize + kStripColumns * StripRows(rows, columns, threads)) +
         (widens ? rows * inner : 0);
}

/// The scratch of a linear layer's products: forward, the gradient of its input, and that of its
/// weights, which transposes the input.
std::int64_t LinearScratch(std::int64_t rows, std::int64_t in, std::int64_t out,
                           std::int64_t threads, bool widens) {
  return std::max({ProductScratch(rows, in, out, threads, widens),
                   ProductScratch(rows, out, in, threads, widens),
                   threads * kStripPackedSize + (rows + 16) * in}) *
         kFloatBytes;
}

/// The scratch of the head: a chunk of logits, the chunk's inputs with their gradients, and packed
/// operands per thread.
std::int64_t HeadScratch(const ModelDims& dims, std::int64_t micro_batch, std::int64_t threads) {
  constexpr std::int64_t kVocabTile = 384;
  const std::int64_t rows = micro_batch * TargetsPerSample(dims);
  const std::int64_t chunks = (rows + kHeadTokens - 1) / kHeadTokens;
  const std::int64_t chunk = chunks == 0 ? 0 : (rows + chunks - 1) / chunks;
  return (chunk * (2 * dims.hidden + RoundedUp(dims.vocab, kVocabTile)) +
          threads * (kStripPackedSize + kVocabTile)) *
         kFloatBytes;
}

}  // namespace

const Architecture& Architecture::Of(ModelKind kind) {
  static constexpr Architecture kGpt2{.biases = true, .causal = true, .norm_epsilon = 1e-5};
  static constexpr Architecture kLlama{
      .rms_norm = true, .rotary = true, .gated = true, .causal = true, .norm_epsilon = 1e-5};
  static constexpr Architecture kBert{
      .post_norm = true, .gelu_erf = true, .biases = true, .norm_epsilon = 1e-12};
  switch (kind) {
    case ModelKind::kLlama:
      return kLlama;
    case ModelKind::kBert:
      return kBert;
    default:
      return kGpt2;
  }
}

const char* ToString(ModelKind kind) {
  switch (kind) {
    case ModelKind::kLlama:
      return "llama";
    case ModelKind::kBert:
      return "bert";
    default:
      return "gpt2";
  }
}

const char* ToString(AttentionBias bias) {
  switch (bias) {
    case AttentionBias::kNone:
      return "none";
    case AttentionBias::kQkv:
      return "qkv";
    case AttentionBias::kAll:
      return "all";
    default:
      return "auto";
  }
}

std::string IdentityOf(const ModelDims& dims) {
  std::string words = fmt::format("model.kind = {}", ToString(dims.kind));
  if (dims.NormEpsilon() != Architecture::Of(dims.kind).norm_epsilon)
    words += fmt::format(", model.norm_epsilon = {}", dims.NormEpsilon());
  if (dims.rope_base != kRopeBase) words += fmt::format(", model.rope_base = {}", dims.rope_base);
  if (const RopeScaling& rope = dims.rope_scaling; rope.factor != 1) {
    words += fmt::format(
        ", model.rope_scaling = llama3 by {} from {} tokens, low_freq_factor {}, high_freq_factor "
        "{}",
        rope.factor, rope.original_sequence, rope.low_freq_factor, rope.high_freq_factor);
  }
  return words + fmt::format(", model.heads = {}", dims.heads);
}

std::int64_t MaskedTargets(std::int64_t sequence) {
  return std::max<std::int64_t>(1, (15 * sequence + 50) / 100);
}

std::int64_t TargetsPerSample(const ModelDims& dims) {
  return Architecture::Of(dims.kind).causal ? dims.sequence : MaskedTargets(dims.sequence);
}

bool ModelDims::CanBeSharedBy(std::int64_t ranks) const {
  if (heads % ranks != 0 || Ffn() % ranks != 0 || vocab < ranks) return false;
  if (ranks <= KvHeads()) return KvHeads() % ranks == 0;
  return ranks % KvHeads() == 0 && HeadSize() % (ranks / KvHeads()) == 0;
}

ModelDims ModelDims::Part(std::int64_t ranks) const {
  if (ranks == 1) return *this;
  assert(CanBeSharedBy(ranks));
  ModelDims part = *this;
  part.head_size = HeadSize();
  part.heads = heads / ranks;
  part.kv_heads = std::max<std::int64_t>(1, KvHeads() / ranks);
  part.kv_ranks = std::max<std::int64_t>(1, ranks / KvHeads());
  part.ffn = Ffn() / ranks;
  part.vocab = (vocab + ranks - 1) / ranks;
  return part;
}

double LayerShape::PartOfParameters(std::int64_t ranks) const {
  if (parameters == 0) return 1;
  return PartOfOne(static_cast<double>(whole_parameters) / static_cast<double>(parameters),
                   static_cast<double>(ranks));
}

double LayerShape::PartOfWork(std::int64_t ranks) const {
  return PartOfOne(whole_work, static_cast<double>(ranks));
}

std::int64_t ModelDims::Ffn() const {
  if (ffn != 0) return ffn;
  if (!Architecture::Of(kind).gated) return 4 * hidden;
  return (8 * hidden / 3 + 255) / 256 * 256;
}

bool ModelDims::HasQkvBias() const {
  if (attention_bias == AttentionBias::kOfKind) return Architecture::Of(kind).biases;
  return attention_bias != AttentionBias::kNone;
}

bool ModelDims::HasProjectionBias() const {
  if (attention_bias == AttentionBias::kOfKind) return Architecture::Of(kind).biases;
  return attention_bias == AttentionBias::kAll;
}

double ModelDims::NormEpsilon() const {
  return norm_epsilon == 0 ? Architecture::Of(kind).norm_epsilon : norm_epsilon;
}

namespace {

Result<void> CheckHeads(const ModelDims& dims) {
  if (dims.head_size < 0 || dims.head_size > kMaxDimension / dims.heads) {
    return Fail(fmt::format(
        "model.head_size = {}: allowed are 1 to {}, for at most {} with model.heads = {}",
        dims.head_size, kMaxDimension / dims.heads, kMaxDimension, dims.heads));
  }
  if (dims.head_size == 0 && dims.hidden % dims.heads != 0) {
    return Fail(fmt::format("model.hidden = {} is not a multiple of model.heads = {}", dims.hidden,
                            dims.heads));
  }
  if (dims.heads % dims.KvHeads() != 0) {
    return Fail(fmt::format("model.kv_heads = {} does not divide model.heads = {}", dims.KvHeads(),
                            dims.heads));
  }
  if (Architecture::Of(dims.kind).rotary && dims.HeadSize() % 2 != 0 && dims.head_size != 0) {
    return Fail(
        fmt::format("model.head_size = {}: rotary positions need an even size", dims.head_size));
  }
  if (Architecture::Of(dims.kind).rotary && dims.HeadSize() % 2 != 0) {
    return Fail(
        fmt::format("model.hidden = {} over model.heads = {} gives heads of {}: rotary positions "
                    "need an even size",
                    dims.hidden, dims.heads, dims.HeadSize()));
  }
  return {};
}

/// Checks the settings that only Llama's relatives may choose.
Result<void> CheckKind(const ModelDims& dims) {
  if (dims.kind == ModelKind::kLlama) return {};
  const ModelDims plain{.kind = dims.kind};
  const std::pair<const char*, bool> keys[] = {
      {"head_size", dims.head_size != plain.head_size},
      {"attention_bias", dims.attention_bias != plain.attention_bias},
      {"rope_base", dims.rope_base != plain.rope_base},
      {"rope_scaling", dims.rope_scaling.factor != plain.rope_scaling.factor},
      {"sliding_window", dims.sliding_window != plain.sliding_window}};
  for (const auto& [key, set] : keys) {
    if (set)
      return Fail(fmt::format("model.{} is set: only model.kind = llama has it, not {}", key,
                              ToString(dims.kind)));
  }
  return {};
}

Result<void> CheckRope(const ModelDims& dims) {
  constexpr double kMostBase = 1e12, kMostFactor = 1e6;
  if (!(dims.rope_base >= 1 && dims.rope_base <= kMostBase)) {
    return Fail(
        fmt::format("model.rope_base = {}: allowed are 1 to {}", dims.rope_base, kMostBase));
  }
  const RopeScaling& rope = dims.rope_scaling;
  if (!(rope.factor >= 1 && rope.factor <= kMostFactor)) {
    return Fail(
        fmt::format("model.rope_factor = {}: allowed are 1 to {}", rope.factor, kMostFactor));
  }
  if (!(rope.low_freq_factor > 0 && rope.low_freq_factor < rope.high_freq_factor &&
        rope.high_freq_factor <= kMostFactor)) {
    return Fail(
        fmt::format("model.rope_low_freq_factor = {}: must lie between 0 and "
                    "model.rope_high_freq_factor = {}, which may be {} at most",
                    rope.low_freq_factor, rope.high_freq_factor, kMostFactor));
  }
  if (rope.original_sequence < 1 || rope.original_sequence > (std::int64_t{1} << 40)) {
    return Fail(fmt::format("model.rope_original_sequence = {}: allowed are 1 to 2^40",
                            rope.original_sequence));
  }
  return {};
}

}  // namespace

Result<void> CheckDims(const ModelDims& dims) {
  const std::array<std::pair<const char*, std::int64_t>, 7> all{{{"layers", dims.layers},
                                                                 {"heads", dims.heads},
                                                                 {"kv_heads", dims.KvHeads()},
                                                                 {"hidden", dims.hidden},
                                                                 {"ffn", dims.Ffn()},
                                                                 {"sequence", dims.sequence},
                                                                 {"vocab", dims.vocab}}};
  for (const auto& [key, value] : all) {
    if (value < 1 || value > kMaxDimension) {
      return Fail(fmt::format("model.{} = {}: allowed are 1 to {}", key, value, kMaxDimension));
    }
  }
  for (const auto check : {CheckHeads, CheckKind, CheckRope}) {
    auto good = check(dims);
    if (!good) return good;
  }
  constexpr double kMostEpsilon = 0.1;
  if (!(dims.norm_epsilon >= 0 && dims.norm_epsilon <= kMostEpsilon)) {
    return Fail(fmt::format("model.norm_epsilon = {}: allowed are numbers above 0 up to {}",
                            dims.norm_epsilon, kMostEpsilon));
  }
  if (dims.sliding_window < 0 || (dims.sliding_window > 0 && dims.sliding_window < dims.sequence)) {
    return Fail(
        fmt::format("model.sliding_window = {}: a sequence that is longer than the window is not "
                    "supported; allowed is model.sequence up to the window, not {}",
                    dims.sliding_window, dims.sequence));
  }
  return {};
}

ModelShape ModelShape::Of(const ModelDims& dims, const TrainingFormat& format) {
  ModelShape shape;
  shape.dims = dims;
  shape.format = format;
  shape.layers.push_back(Embedding(dims, format));
  for (std::int64_t i = 0; i < dims.layers; ++i) shape.layers.push_back(Block(dims, format, i));
  shape.layers.push_back(Head(dims, format));
  shape.workspace_bytes_per_sample = WorkspaceBytes(dims, format);

  shape.total = Counted("total", format, 0, 0, shape.workspace_bytes_per_sample);
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

std::int64_t ModelShape::ProcessBytes(std::int64_t micro_batch, std::int64_t threads) const {
  const std::int64_t rows = micro_batch * dims.sequence;
  const bool widens = format.precision != Precision::kFp32;
  const std::int64_t scratch =
      std::max({HeadScratch(dims, micro_batch, threads),
                LinearScratch(rows, dims.hidden, dims.QkvProductColumns(), threads, widens),
                LinearScratch(rows, dims.AttentionColumns(), dims.hidden, threads, widens),
                LinearScratch(rows, dims.hidden, dims.FfnColumns(), threads, widens),
                LinearScratch(rows, dims.Ffn(), dims.hidden, threads, widens)});
  return kProcessBytes + scratch;
}

std::int64_t ModelShape::PeakBytes(std::int64_t micro_batch, std::int64_t ranks,
                                   std::int64_t threads) const {
  const std::int64_t snapshot = 3 * total.parameters * kFloatBytes / ranks;
  // Received pieces of the gradients' sums, in the worst case of all buckets at once.
  const std::int64_t ring = ranks > 1 ? total.gradient_bytes / ranks : 0;
  return ring + total.parameter_bytes + total.gradient_bytes + total.optimizer_bytes + snapshot +
         micro_batch * total.activation_bytes_per_sample + ProcessBytes(micro_batch, threads);
}

}  // namespace adaptive_train
