// Names and order of the models' parameters, and their initial values.
#include "runtime/model/parameter_layout.h"

#include <algorithm>
#include <cassert>
#include <cmath>
#include <initializer_list>
#include <numeric>
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
  range.rows = {0, rows};
  range.columns = {{0, columns}};
  range.decay = true;
  range.initial = InitialValue::kNormal;
  range.initial_std = initial_std;
  return range;
}

ParameterRange Vector(std::string name, std::int64_t count, InitialValue initial) {
  ParameterRange range;
  range.name = std::move(name);
  range.shape = {count};
  range.rows = {0, 1};
  range.columns = {{0, count}};
  range.initial = initial;
  return range;
}

ParameterRange ByRows(ParameterRange range) {
  range.split = TensorSplit::kRows;
  return range;
}

/// Every tensor rank has its part of each of these groups of columns.
ParameterRange ByColumns(ParameterRange range, std::initializer_list<std::int64_t> groups) {
  range.split = TensorSplit::kColumns;
  range.columns.clear();
  std::int64_t begin = 0;
  for (const std::int64_t width : groups) {
    range.columns.push_back({begin, begin + width});
    begin += width;
  }
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
                  std::int64_t in, std::int64_t out) {
  ranges.push_back(Weight(name + ".weight", in, out));
  if (bias) ranges.push_back(Vector(name + ".bias", out, InitialValue::kZeros));
}

/// The same for a product from the residual stream, which tensor ranks share by its columns.
void AppendInward(std::vector<ParameterRange>& ranges, bool bias, const std::string& name,
                  std::int64_t in, std::initializer_list<std::int64_t> out) {
  const std::int64_t columns = std::accumulate(out.begin(), out.end(), std::int64_t{0});
  ranges.push_back(ByColumns(Weight(name + ".weight", in, columns), out));
  if (bias) ranges.push_back(ByColumns(Vector(name + ".bias", columns, InitialValue::kZeros), out));
}

/// The same for a product into the residual stream, which they share by its rows.
void AppendOutward(std::vector<ParameterRange>& ranges, bool bias, const std::string& name,
                   std::int64_t in, std::int64_t out, double initial_std) {
  ranges.push_back(ByRows(Weight(name + ".weight", in, out, initial_std)));
  if (bias) ranges.push_back(Vector(name + ".bias", out, InitialValue::kZeros));
}

std::vector<ParameterRange> EmbeddingRanges(const ModelDims& dims) {
  const Architecture& kind = Architecture::Of(dims.kind);
  std::vector<ParameterRange> ranges{ByRows(Weight("wte.weight", dims.vocab, dims.hidden))};
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
  const std::int64_t kv_columns = dims.KvHeads() * dims.HeadSize();
  AppendInward(ranges, dims.HasQkvBias(), h + "attn.c_attn", dims.hidden,
               {dims.AttentionColumns(), kv_columns, kv_columns});
  AppendOutward(ranges, dims.HasProjectionBias(), h + "attn.c_proj", dims.AttentionColumns(),
                dims.hidden, residual_std);
  AppendNorm(ranges, kind, h + "ln_2", dims.hidden);
  AppendInward(ranges, kind.biases, h + "mlp.c_fc", dims.hidden,
               {dims.Ffn(), kind.gated ? dims.Ffn() : 0});
  AppendOutward(ranges, kind.biases, h + "mlp.c_proj", dims.Ffn(), dims.hidden, residual_std);
  return ranges;
}

std::vector<ParameterRange> HeadRanges(const ModelDims& dims) {
  const Architecture& kind = Architecture::Of(dims.kind);
  std::vector<ParameterRange> ranges;
  if (dims.kind == ModelKind::kBert) {
    AppendLinear(ranges, kind.biases, "head.dense", dims.hidden, dims.hidden);
    AppendNorm(ranges, kind, "head.ln", dims.hidden);
    ranges.push_back(
        ByColumns(Vector("head.bias", dims.vocab, InitialValue::kZeros), {dims.vocab}));
  } else {
    AppendNorm(ranges, kind, "ln_f", dims.hidden);
  }
  if (!dims.tie_embeddings)
    ranges.push_back(ByRows(Weight("lm_head.weight", dims.vocab, dims.hidden)));
  return ranges;
}

/// Reduces a whole parameter to the rank's part of it, and counts it.
ParameterRange Cut(ParameterRange range, const TensorPart& part) {
  range.whole_rows = range.rows.size();
  range.whole_columns = range.columns.back().end;
  if (range.split == TensorSplit::kRows) range.rows = part.Of(range.rows.size());
  std::int64_t width = 0;
  for (ElementRange& group : range.columns) {
    if (range.split == TensorSplit::kColumns) {
      const ElementRange own = part.Of(group.size());
      group = {group.begin + own.begin, group.begin + own.end};
    }
    width += group.size();
    if (group.size() > 0) range.column_runs.push_back(group.size());
  }
  std::erase_if(range.columns, [](const ElementRange& group) { return group.size() == 0; });
  if (part.ranks == 1) range.columns = {{0, range.whole_columns}};
  range.shape.back() = width;
  if (range.shape.size() > 1) range.shape.front() = range.rows.size();
  range.count = range.rows.size() * width;
  return range;
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

ParameterLayout::ParameterLayout(const ModelDims& dims, std::span<const StageSlice> chunks,
                                 const TensorPart& tensor)
    : tensor_(tensor) {
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
    range.global_offset = global_offset;
    global_offset += range.rows.size() * range.columns.back().end;
    if (any_holds(range.part, range.block)) Append(Cut(std::move(range), tensor));
  }
  if (any_holds(LayerPart::kHead, 0) && !any_holds(LayerPart::kEmbedding, 0) &&
      dims.tie_embeddings) {
    ParameterRange copy = ByRows(Weight("wte.weight", dims.vocab, dims.hidden));
    copy.part = LayerPart::kHead;
    Append(Cut(std::move(copy), tensor));
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

ElementRanges ParameterLayout::OwnElements(std::int64_t begin, std::int64_t end) const {
  if (tensor_.rank == 0) return {{begin, end}};
  ElementRanges own;
  for (const ParameterRange& range : ranges_) {
    const std::int64_t first = std::max(begin, range.offset),
                       last = std::min(end, range.offset + range.count);
    if (first >= last || range.split == TensorSplit::kNone) continue;
    if (!own.empty() && own.back().end == first) {
      own.back().end = last;
    } else {
      own.push_back({first, last});
    }
  }
  return own;
}

namespace {

/// Calls body(element, place, count) for runs of the range's elements [first, last), counted in it,
/// that are neighbours in the whole parameter as well, where they begin at `place`.
template <class Body>
void ForRuns(const ParameterRange& range, std::int64_t first, std::int64_t last, const Body& body) {
  const std::int64_t width = range.shape.back();
  if (width == range.whole_columns)
    return body(first, range.rows.begin * width + first, last - first);
  for (std::int64_t row = first / width; row * width < last; ++row) {
    std::int64_t begin = row * width;
    for (const ElementRange& columns : range.columns) {
      const std::int64_t from = std::max(first, begin), to = std::min(last, begin + columns.size());
      if (from < to)
        body(from, (range.rows.begin + row) * range.whole_columns + columns.begin + from - begin,
             to - from);
      begin += columns.size();
    }
  }
}

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
                          std::int64_t end, std::span<T> values) {
  assert(static_cast<std::int64_t>(values.size()) == end - begin);
  const auto part = [&](std::int64_t from, std::int64_t to) {
    return values.subspan(static_cast<std::size_t>(from - begin),
                          static_cast<std::size_t>(to - from));
  };
  const CounterRandom random(seed, RandomPurpose::kInitialization);
  for (const ParameterRange& range : layout.ranges()) {
    const std::int64_t first = std::max(begin, range.offset);
    const std::int64_t last = std::min(end, range.offset + range.count);
    if (first >= last) continue;
    const std::span<T> here = part(first, last);
    switch (range.initial) {
      case InitialValue::kZeros:
        std::fill(here.begin(), here.end(), T{0});
        break;
      case InitialValue::kOnes:
        std::fill(here.begin(), here.end(), T{1});
        break;
      case InitialValue::kNormal:
        ForRuns(range, first - range.offset, last - range.offset,
                [&](std::int64_t element, std::int64_t place, std::int64_t count) {
                  const std::int64_t at = range.offset + element;
                  FillNormal(random, range.global_offset + place, range.initial_std,
                             part(at, at + count));
                });
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
