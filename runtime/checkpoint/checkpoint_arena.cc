#include "runtime/checkpoint/checkpoint_arena.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "core/file_io.h"

namespace adaptive_train {
namespace {

using Block = ArenaMap::Block;

/// Rows and columns by their numbers, or why there are no such.
Result<Block> Place(const ModelPlaces& places, const ParameterBlock& block) {
  const auto refuse = [&](const std::string& why) {
    return Fail(fmt::format("\"{}\" {}", Printable(block.name), why), ExitCode::kRankFailure);
  };
  const ModelPlaces::Parameter* parameter = places.Find(block.name);
  if (parameter == nullptr) return refuse("is not a parameter of the model");
  Block placed;
  placed.parameter = parameter->number;
  placed.copy = block.copy;
  placed.stride = parameter->columns;
  placed.rows = block.rows.size() == 0 ? ElementRange{0, parameter->rows} : block.rows;
  placed.columns = block.columns.empty() ? ElementRanges{{0, parameter->columns}} : block.columns;
  if (placed.rows.begin < 0 || placed.rows.size() < 0 || placed.rows.end > parameter->rows)
    return refuse(fmt::format("has rows [0, {}), not [{}, {})", parameter->rows, placed.rows.begin,
                              placed.rows.end));
  std::int64_t last = 0;
  for (const ElementRange& range : placed.columns) {
    if (range.begin < last || range.size() < 0 || range.end > parameter->columns)
      return refuse(fmt::format("has columns [{}, {}) left, not [{}, {})", last, parameter->columns,
                                range.begin, range.end));
    placed.column_offsets.push_back(placed.width);
    placed.width += range.size();
    last = range.end;
  }
  placed.place = parameter->begin + placed.rows.begin * placed.stride;
  return placed;
}

void Append(std::vector<ArenaRun>& runs, const ArenaRun& run) {
  if (!runs.empty() && runs.back().begin + runs.back().count == run.begin &&
      runs.back().place + runs.back().count == run.place) {
    runs.back().count += run.count;
  } else {
    runs.push_back(run);
  }
}

/// Elements of the arena that lie in the block.
void AppendRuns(std::vector<ArenaRun>& runs, const Block& block, const ElementRange& range) {
  if (block.width == block.stride)
    return Append(runs, {range.begin, block.place + range.begin - block.begin, range.size()});
  for (std::int64_t at = range.begin; at < range.end;) {
    const std::int64_t row = (at - block.begin) / block.width;
    const std::int64_t offset = (at - block.begin) % block.width;
    const auto next =
        std::upper_bound(block.column_offsets.begin(), block.column_offsets.end(), offset);
    const auto held = static_cast<std::size_t>(next - block.column_offsets.begin()) - 1;
    const std::int64_t skipped = offset - block.column_offsets[held];
    const ElementRange& columns = block.columns[held];
    const std::int64_t count = std::min(range.end - at, columns.size() - skipped);
    Append(runs, {at, block.place + row * block.stride + columns.begin + skipped, count});
    at += count;
  }
}

}  // namespace

std::vector<ParameterBlock> BlocksOf(const ParameterLayout& layout) {
  std::vector<ParameterBlock> blocks;
  for (const ParameterRange& range : layout.ranges()) {
    ParameterBlock& block = blocks.emplace_back(ParameterBlock{.name = range.name});
    block.copy = (range.part == LayerPart::kHead && range.name == "wte.weight") ||
                 (range.split == TensorSplit::kNone && layout.tensor().rank > 0);
    if (layout.tensor().ranks == 1) continue;
    if (range.split == TensorSplit::kRows) block.rows = range.rows;
    if (range.split == TensorSplit::kColumns) block.columns = range.columns;
  }
  return blocks;
}

ModelPlaces::ModelPlaces(const std::vector<CheckpointParameter>& parameters) {
  std::int64_t begin = 0;
  for (std::size_t number = 0; number < parameters.size(); ++number) {
    const CheckpointParameter& parameter = parameters[number];
    const std::int64_t rows = parameter.shape.size() < 2 ? 1 : parameter.shape[0];
    by_name_[parameter.name] = {number, begin, rows, rows == 0 ? 0 : parameter.count / rows};
    begin += parameter.count;
  }
}

const ModelPlaces::Parameter* ModelPlaces::Find(std::string_view name) const {
  const auto found = by_name_.find(name);
  return found == by_name_.end() ? nullptr : &found->second;
}

Result<ArenaMap> ArenaMap::Of(const ModelPlaces& places,
                              const std::vector<ParameterBlock>& blocks) {
  ArenaMap map;
  for (const ParameterBlock& block : blocks) {
    auto placed = Place(places, block);
    if (!placed) return tl::unexpected(placed.error());
    placed->begin = map.size();
    if (placed->end() >= kMaxCheckpointCount)
      return Fail("an arena has more elements than any model", ExitCode::kRankFailure);
    if (placed->end() > placed->begin) map.blocks_.push_back(std::move(*placed));
  }
  return map;
}

/// The block that the element is in.
std::size_t ArenaMap::BlockAt(std::int64_t element) const {
  const auto found = std::partition_point(
      blocks_.begin(), blocks_.end(), [&](const Block& block) { return block.end() <= element; });
  return static_cast<std::size_t>(found - blocks_.begin());
}

ElementRanges ArenaMap::WithoutCopies(const ElementRanges& ranges) const {
  ElementRanges rest;
  for (const ElementRange& range : ranges) {
    std::int64_t at = range.begin;
    for (std::size_t block = BlockAt(at); at < range.end; ++block) {
      const std::int64_t end = std::min(range.end, blocks_[block].end());
      if (!blocks_[block].copy) {
        if (!rest.empty() && rest.back().end == at) {
          rest.back().end = end;
        } else {
          rest.push_back({at, end});
        }
      }
      at = end;
    }
  }
  return rest;
}

std::vector<ArenaRun> ArenaMap::RunsOf(const ElementRanges& ranges) const {
  std::vector<ArenaRun> runs;
  for (const ElementRange& range : ranges) {
    std::int64_t at = range.begin;
    for (std::size_t block = BlockAt(at); at < range.end; ++block) {
      const std::int64_t end = std::min(range.end, blocks_[block].end());
      AppendRuns(runs, blocks_[block], {at, end});
      at = end;
    }
  }
  return runs;
}

}  // namespace adaptive_train
