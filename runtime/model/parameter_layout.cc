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

/// The weight of a norm, and its bias where it has one.
void AppendNorm(std::vector<ParameterRange>& ranges, const Architecture& kind,
                const std::string& name, std::int64_t columns) {
  ranges.push_back(Vector(name + ".weight", columns, InitialValue::kOnes));
  if (!kind.rms_norm) ranges.push_back(Vector(name + ".bias", columns, InitialValue::kZeros));
}

/// The weight of a product, and its bias where it has one.
void AppendLinear(std::vector<ParameterRange>& ranges, const Architecture& kind,
                  const std::string& name, std::int64_t in, std::int64_t out,
                  double initial_std = kInitialStd) {
  ranges.push_back(Weight(name + ".weight", in, out, initial_std));
  if (kind.biases) ranges.push_back(Vector(name + ".bias", out, InitialValue::kZeros));
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
  AppendLinear(ranges, kind, h + "attn.c_attn", dims.hidden, dims.QkvColumns());
  AppendLinear(ranges, kind, h + "attn.c_proj", dims.hidden, dims.hidden, residual_std);
  AppendNorm(ranges, kind, h + "ln_2", dims.hidden);
  AppendLinear(ranges, kind, h + "mlp.c_fc", dims.hidden, dims.FfnColumns());
  AppendLinear(ranges, kind, h + "mlp.c_proj", dims.Ffn(), dims.hidden, residual_std);
  return ranges;
}

std::vector<ParameterRange> HeadRanges(const ModelDims& dims) {
  const Architecture& kind = Architecture::Of(dims.kind);
  std::vector<ParameterRange> ranges;
  if (dims.kind == ModelKind::kBert) {
    AppendLinear(ranges, kind, "head.dense", dims.hidden, dims.hidden);
    AppendNorm(ranges, kind, "head.ln", dims.hidden);
    ranges.push_back(Vector("head.bias", dims.vocab, InitialValue::kZeros));
  } else {
    AppendNorm(ranges, kind, "ln_f", dims.hidden);
  }
  if (!dims.tie_embeddings) ranges.push_back(Weight("lm_head.weight", dims.vocab, dims.hidden));
  return ranges;
}

enum class Place { kEmbedding, kBlock, kHead };

struct PlacedRange {
  Place place;
  std::int64_t block;  // of kBlock
  ParameterRange range;

  bool IsIn(const StageSlice& slice) const {
    switch (place) {
      case Place::kEmbedding:
        return slice.has_embedding;
      case Place::kBlock:
        return block >= slice.first_block && block < slice.last_block;
      default:
        return slice.has_head;
    }
  }
};

/// The whole model in the order of its arena.
std::vector<PlacedRange> ModelRanges(const ModelDims& dims) {
  std::vector<PlacedRange> all;
  const auto append = [&](Place place, std::int64_t block, std::vector<ParameterRange> ranges) {
    for (ParameterRange& range : ranges) all.push_back({place, block, std::move(range)});
  };
  append(Place::kEmbedding, 0, EmbeddingRanges(dims));
  for (std::int64_t block = 0; block < dims.layers; ++block)
    append(Place::kBlock, block, BlockRanges(dims, block));
  append(Place::kHead, 0, HeadRanges(dims));
  return all;
}

/// The number of the block that a parameter belongs to, or -1: "h.12.ln_1.weight" is of 12.
std::int64_t BlockOf(const std::string& name) {
  return name.rfind("h.", 0) == 0 ? std::stoll(name.substr(2)) : -1;
}

}  // namespace

ParameterLayout::ParameterLayout(const ModelDims& dims, const StageSlice& slice) {
  assert(0 <= slice.first_block && slice.first_block <= slice.last_block &&
         slice.last_block <= dims.layers);
  std::int64_t global_offset = 0;
  for (PlacedRange& placed : ModelRanges(dims)) {
    ParameterRange& range = placed.range;
    range.count = 1;
    for (const std::int64_t length : range.shape) range.count *= length;
    range.global_offset = global_offset;
    global_offset += range.count;
    if (placed.IsIn(slice)) Append(std::move(range));
  }
  if (slice.has_head && !slice.has_embedding && dims.tie_embeddings) {
    ParameterRange copy = Weight("wte.weight", dims.vocab, dims.hidden);
    copy.count = dims.vocab * dims.hidden;
    Append(std::move(copy));
  }
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
  // The arena holds them in this order; what follows the blocks is the head's.
  std::vector<LayerElements> layers(1);
  std::int64_t block = -1;
  bool blocks_over = false;
  for (const ParameterRange& range : layout.ranges()) {
    const std::int64_t of = BlockOf(range.name);
    const auto begin = static_cast<std::size_t>(range.offset);
    const bool begins_block = of >= 0 && of != block;
    const bool begins_head = of < 0 && block >= 0 && !blocks_over;
    if (begins_block || begins_head) layers.push_back({begin, begin});
    if (begins_block) block = of;
    blocks_over = blocks_over || begins_head;
    layers.back().end = begin + static_cast<std::size_t>(range.count);
  }
  if (!blocks_over) layers.push_back({layers.back().end, layers.back().end});
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
