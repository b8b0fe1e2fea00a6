// Names and order of the models' parameters, and their initial values.
#include "runtime/model/parameter_layout.h"

#include <algorithm>
#include <cassert>
#include <cmath>
#include <utility>

#include "core/counter_random.h"

namespace adaptive_train {
namespace {

constexpr double kInitialStd = 0.02;

ParameterRange Weight(std::string name, std::int64_t rows, std::int64_t columns,
                      double initial_std = kInitialStd) {
  ParameterRange range;
  range.name = std::move(name);
  range.shape = {rows, columns};
  range.decay = true;
  range.initial = InitialValue::kNormal;
  range.initial_std = initial_std;
  return range;
}

ParameterRange Vector(std::string name, std::int64_t count, InitialValue initial) {
  ParameterRange range;
  range.name = std::move(name);
  range.shape = {count};
  range.initial = initial;
  return range;
}

/// The weight of a norm, and its bias if it has one.
void AppendNorm(std::vector<ParameterRange>& ranges, const Architecture& kind,
                const std::string& name, std::int64_t columns) {
  ranges.push_back(Vector(name + ".weight", columns, InitialValue::kOnes));
  if (!kind.rms_norm) ranges.push_back(Vector(name + ".bias", columns, InitialValue::kZeros));
}

/// The weight of a product, and its bias if it has one.
void AppendLinear(std::vector<ParameterRange>& ranges, bool bias, const std::string& name,
                  std::int64_t in, std::int64_t out, double initial_std = kInitialStd) {
  ranges.push_back(Weight(name + ".weight", in, out, initial_std));
  if (bias) ranges.push_back(Vector(name + ".bias", out, InitialValue::kZeros));
}

std::vector<ParameterRange> EmbeddingRanges(const ModelDims& dims) {
  const Architecture& kind = Architecture::Of(dims.kind);
  std::vector<ParameterRange> ranges{Weight("wte.weight", dims.vocab, dims.hidden)};
  if (!kind.rotary) ranges.push_back(Weight("wpe.weight", dims.sequence, dims.hidden));
  if (dims.kind == ModelKind::kBert) {
    ranges.push_back(Weight("wtt.weight", 1, dims.hidden));
    AppendNorm(ranges, kind, "ln_embedding", dims.hidden);
  }
  return ranges;
}

std::vector<ParameterRange> BlockRanges(const ModelDims& dims, std::int64_t block) {
  const std::string h = "h." + std::to_string(block) + ".";
  const Architecture& kind = Architecture::Of(dims.kind);
  const double residual_std = kInitialStd / std::sqrt(2.0 * static_cast<double>(dims.layers));
  std::vector<ParameterRange> ranges;
  AppendNorm(ranges, kind, h + "ln_1", dims.hidden);
  AppendLinear(ranges, dims.HasQkvBias(), h + "attn.c_attn", dims.hidden, dims.QkvColumns());
  AppendLinear(ranges, dims.HasProjectionBias(), h + "attn.c_proj", dims.AttentionColumns(),
               dims.hidden, residual_std);
  AppendNorm(ranges, kind, h + "ln_2", dims.hidden);
  AppendLinear(ranges, kind.biases, h + "mlp.c_fc", dims.hidden, dims.FfnColumns());
  AppendLinear(ranges, kind.biases, h + "mlp.c_proj", dims.Ffn(), dims.hidden, residual_std);
  return ranges;
}

std::vector<ParameterRange> HeadRanges(const ModelDims& dims) {
  const Architecture& kind = Architecture::Of(dims.kind);
  std::vector<ParameterRange> ranges;
  if (dims.kind == ModelKind::kBert) {
    AppendLinear(ranges, kind.biases, "head.dense", dims.hidden, dims.hidden);
    AppendNorm(ranges, kind, "head.ln", dims.hidden);
    ranges.push_back(Vector("head.bias", dims.vocab, InitialValue::kZeros));
  } else {
    AppendNorm(ranges, kind, "ln_f", dims.hidden);
  }
  if (!dims.tie_embeddings) ranges.push_back(Weight("lm_head.weight", dims.vocab, dims.hidden));
  return ranges;
}

/// The whole model in the order of its arena.
std::vector<ParameterRange> ModelRanges(const ModelDims& dims) {
  std::vector<ParameterRange> all;
  const auto append = [&](LayerPart part, std::int64_t block, std::vector<ParameterRange> ranges) {
    for (ParameterRange& range : ranges) {
      range.part = part;
      range.block = block;
      all.push_back(std::move(range));
    }
  };
  append(LayerPart::kEmbedding, 0, EmbeddingRanges(dims));
  for (std::int64_t block = 0; block < dims.layers; ++block)
    append(LayerPart::kBlock, block, BlockRanges(dims, block));
  append(LayerPart::kHead, 0, HeadRanges(dims));
  return all;
}

}  // namespace

bool StageSlice::Holds(LayerPart part, std::int64_t block) const {
  switch (part) {
    case LayerPart::kEmbedding:
      return has_embedding;
    case LayerPart::kBlock:
      return block >= first_block && block < last_block;
    default:
      return has_head;
  }
}

StageSlice StageSlice::OfLayers(const ModelDims& dims, std::int64_t first, std::int64_t end) {
  return {std::clamp<std::int64_t>(first - 1, 0, dims.layers),
          std::clamp<std::int64_t>(end - 1, 0, dims.layers), first == 0, end == dims.layers + 2};
}

ParameterLayout::ParameterLayout(const ModelDims& dims, std::span<const StageSlice> chunks) {
  const auto any_holds = [&](LayerPart part, std::int64_t block) {
    return std::any_of(chunks.begin(), chunks.end(),
                       [&](const StageSlice& chunk) { return chunk.Holds(part, block); });
  };
  assert(std::all_of(chunks.begin(), chunks.end(), [&](const StageSlice& chunk) {
    return 0 <= chunk.first_block && chunk.first_block <= chunk.last_block &&
           chunk.last_block <= dims.layers;
  }));
  std::int64_t global_offset = 0;
  for (ParameterRange& range : ModelRanges(dims)) {
    range.count = 1;
    for (const std::int64_t length : range.shape) range.count *= length;
    range.global_offset = global_offset;
    global_offset += range.count;
    if (any_holds(range.part, range.block)) Append(std::move(range));
  }
  if (any_holds(LayerPart::kHead, 0) && !any_holds(LayerPart::kEmbedding, 0) &&
      dims.tie_embeddings) {
    ParameterRange copy = Weight("wte.weight", dims.vocab, dims.hidden);
    copy.count = dims.vocab * dims.hidden;
    copy.part = LayerPart::kHead;
    Append(std::move(copy));
    has_copy_ = true;
  }
}

ParameterLayout ParameterLayout::WithoutCopy() const {
  ParameterLayout without = *this;
  if (!has_copy_) return without;
  without.size_ -= ranges_.back().count;
  without.ranges_.pop_back();
  without.has_copy_ = false;
  return without;
}

void ParameterLayout::Append(ParameterRange range) {
  range.offset = size_;
  size_ += range.count;
  ranges_.push_back(std::move(range));
}

const ParameterRange* ParameterLayout::Find(std::string_view name) const {
  const auto found = std::find_if(ranges_.begin(), ranges_.end(),
                                  [&](const auto& range) { return range.name == name; });
  return found == ranges_.end() ? nullptr : &*found;
}

std::int64_t ParameterLayout::OffsetOf(std::string_view name) const {
  const ParameterRange* range = Find(name);
  return range == nullptr ? -1 : range->offset;
}

std::vector<DecayRun> ParameterLayout::DecayRuns(std::int64_t begin, std::int64_t end) const {
  std::vector<DecayRun> runs;
  for (const ParameterRange& range : ranges_) {
    const std::int64_t first = std::max(begin, range.offset),
                       last = std::min(end, range.offset + range.count);
    if (first >= last) continue;
    if (!runs.empty() && runs.back().decay == range.decay) {
      runs.back().end = last;
    } else {
      runs.push_back({first, last, range.decay});
    }
  }
  return runs;
}

namespace {

// Four normals come from one block of random bits, and blocks are aligned to the global offset.
template <class T>
void FillNormal(const CounterRandom& random, std::int64_t global_offset, double std_deviation,
                std::span<T> values) {
  auto block = static_cast<std::uint64_t>(global_offset) / 4;
  auto lane = static_cast<std::size_t>(global_offset % 4);
  for (std::size_t i = 0; i < values.size(); ++block, lane = 0) {
    const std::array<float, 4> normals = random.Normals({}, block);
    for (; lane < 4 && i < values.size(); ++lane, ++i)
      values[i] = normals[lane] * static_cast<float>(std_deviation);
  }
}

}  // namespace

std::vector<LayerElements> LayersOf(const ParameterLayout& layout) {
  std::vector<LayerElements> layers(1);
  const ParameterRange* before = nullptr;
  for (const ParameterRange& range : layout.ranges()) {
    const auto begin = static_cast<std::size_t>(range.offset);
    const LayerPart part = before == nullptr ? LayerPart::kEmbedding : before->part;
    const bool begins_block = range.part == LayerPart::kBlock &&
                              (part != LayerPart::kBlock || before->block != range.block);
    const bool begins_head = range.part == LayerPart::kHead && part != LayerPart::kHead;
    if (begins_block || begins_head) layers.push_back({begin, begin});
    layers.back().end = begin + static_cast<std::size_t>(range.count);
    before = &range;
  }
  const bool has_head = before != nullptr && before->part == LayerPart::kHead;
  if (!has_head) layers.push_back({layers.back().end, layers.back().end});
  return layers;
}

std::vector<LayerElements> LayersOf(const ParameterLayout& layout, const StageSlice& chunk) {
  std::vector<LayerElements> layers(
      static_cast<std::size_t>(2 + chunk.last_block - chunk.first_block));
  for (const ParameterRange& range : layout.ranges()) {
    if (!chunk.Holds(range.part, range.block)) continue;
    const auto begin = static_cast<std::size_t>(range.offset);
    LayerElements& layer =
        range.part == LayerPart::kEmbedding ? layers.front()
        : range.part == LayerPart::kHead
            ? layers.back()
            : layers[static_cast<std::size_t>(1 + range.block - chunk.first_block)];
    if (layer.size() == 0) layer.begin = begin;
    layer.end = begin + static_cast<std::size_t>(range.count);
  }
  return layers;
}

template <class T>
void InitializeParameters(const ParameterLayout& layout, std::uint64_t seed,
                          std::span<T> parameters) {
  InitializeParameters(layout, seed, 0, layout.size(), parameters);
}

template <class T>
void InitializeParameters(const ParameterLayout& layout, std::uint64_t seed, std::int64_t begin,
                          std::int64_t end, std::span<T> parameters) {
  assert(static_cast<std::int64_t>(parameters.size()) == layout.size());
  const CounterRandom random(seed, RandomPurpose::kInitialization);
  for (const ParameterRange& range : layout.ranges()) {
    const std::int64_t first = std::max(begin, range.offset);
    const std::int64_t last = std::min(end, range.offset + range.count);
    if (first >= last) continue;
    const std::span<T> values =
        parameters.subspan(static_cast<std::size_t>(first), static_cast<std::size_t>(last - first));
    switch (range.initial) {
      case InitialValue::kZeros:
        std::fill(values.begin(), values.end(), T{0});
        break;
      case InitialValue::kOnes:
        std::fill(values.begin(), values.end(), T{1});
        break;
      case InitialValue::kNormal:
        FillNormal(random, range.global_offset + (first - range.offset), range.initial_std, values);
        break;
    }
  }
}

template void InitializeParameters(const ParameterLayout&, std::uint64_t, std::span<float>);
template void InitializeParameters(const ParameterLayout&, std::uint64_t, std::span<double>);
template void InitializeParameters(const ParameterLayout&, std::uint64_t, std::int64_t,
                                   std::int64_t, std::span<float>);
template void InitializeParameters(const ParameterLayout&, std::uint64_t, std::int64_t,
                                   std::int64_t, std::span<double>);

}  // namespace adaptive_train
