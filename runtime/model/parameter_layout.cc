// Names and order of GPT-2's parameters, and their initial values.
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

std::vector<ParameterRange> BlockRanges(const ModelDims& dims, std::int64_t block) {
  const std::string h = "h." + std::to_string(block) + ".";
  const std::int64_t hidden = dims.hidden;
  const double residual_std = kInitialStd / std::sqrt(2.0 * static_cast<double>(dims.layers));
  return {Vector(h + "ln_1.weight", hidden, InitialValue::kOnes),
          Vector(h + "ln_1.bias", hidden, InitialValue::kZeros),
          Weight(h + "attn.c_attn.weight", hidden, 3 * hidden),
          Vector(h + "attn.c_attn.bias", 3 * hidden, InitialValue::kZeros),
          Weight(h + "attn.c_proj.weight", hidden, hidden, residual_std),
          Vector(h + "attn.c_proj.bias", hidden, InitialValue::kZeros),
          Vector(h + "ln_2.weight", hidden, InitialValue::kOnes),
          Vector(h + "ln_2.bias", hidden, InitialValue::kZeros),
          Weight(h + "mlp.c_fc.weight", hidden, 4 * hidden),
          Vector(h + "mlp.c_fc.bias", 4 * hidden, InitialValue::kZeros),
          Weight(h + "mlp.c_proj.weight", 4 * hidden, hidden, residual_std),
          Vector(h + "mlp.c_proj.bias", hidden, InitialValue::kZeros)};
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
  all.push_back({Place::kEmbedding, 0, Weight("wte.weight", dims.vocab, dims.hidden)});
  all.push_back({Place::kEmbedding, 0, Weight("wpe.weight", dims.sequence, dims.hidden)});
  for (std::int64_t block = 0; block < dims.layers; ++block) {
    for (ParameterRange& range : BlockRanges(dims, block))
      all.push_back({Place::kBlock, block, std::move(range)});
  }
  all.push_back({Place::kHead, 0, Vector("ln_f.weight", dims.hidden, InitialValue::kOnes)});
  all.push_back({Place::kHead, 0, Vector("ln_f.bias", dims.hidden, InitialValue::kZeros)});
  if (!dims.tie_embeddings)
    all.push_back({Place::kHead, 0, Weight("lm_head.weight", dims.vocab, dims.hidden)});
  return all;
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

template <class T>
void InitializeParameters(const ParameterLayout& layout, std::uint64_t seed,
                          std::span<T> parameters) {
  assert(static_cast<std::int64_t>(parameters.size()) == layout.size());
  const CounterRandom random(seed, RandomPurpose::kInitialization);
  for (const ParameterRange& range : layout.ranges()) {
    const std::span<T> values = parameters.subspan(static_cast<std::size_t>(range.offset),
                                                   static_cast<std::size_t>(range.count));
    switch (range.initial) {
      case InitialValue::kZeros:
        std::fill(values.begin(), values.end(), T{0});
        break;
      case InitialValue::kOnes:
        std::fill(values.begin(), values.end(), T{1});
        break;
      case InitialValue::kNormal:
        FillNormal(random, range.global_offset, range.initial_std, values);
        break;
    }
  }
}

template void InitializeParameters(const ParameterLayout&, std::uint64_t, std::span<float>);
template void InitializeParameters(const ParameterLayout&, std::uint64_t, std::span<double>);

}  // namespace adaptive_train
