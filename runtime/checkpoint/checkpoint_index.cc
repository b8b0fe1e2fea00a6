#include "runtime/checkpoint/checkpoint_index.h"

#include <fmt/format.h>

#include <cassert>
#include <cstddef>

#include "runtime/checkpoint/checkpoint_json.h"

namespace adaptive_train {
namespace {

using checkpoint_json::BadContent;
using checkpoint_json::CountAt;
using checkpoint_json::CountFrom;
using checkpoint_json::HashFrom;
using nlohmann::json;
using nlohmann::ordered_json;

/// What a rule may ask of a reader that goes through its buckets: 16 times as many as a model of
/// 10^12 parameters has.
constexpr std::int64_t kMaxBuckets = std::int64_t{1} << 24;
/// FractionOf takes no more places.
constexpr std::int64_t kMaxPlaces = (std::int64_t{1} << 31) - 1;

ElementRange RangeFrom(const json& list, const std::string& what) {
  if (!list.is_array() || list.size() != 2) throw BadContent{what + " are not [begin, end]"};
  const ElementRange range{CountFrom(list[0], what), CountFrom(list[1], what)};
  if (range.size() <= 0)
    throw BadContent{fmt::format("{}: [{}, {}) is not a range", what, range.begin, range.end)};
  return range;
}

ordered_json JsonOf(const ElementRange& range) {
  return ordered_json::array({range.begin, range.end});
}

ParameterBlock BlockFrom(const json& value) {
  ParameterBlock block;
  if (value.is_string()) {
    value.get_to(block.name);
    return block;
  }
  value.at("name").get_to(block.name);
  const std::string name = Printable(block.name);
  if (const auto rows = value.find("rows"); rows != value.end())
    block.rows = RangeFrom(*rows, name + ": rows");
  if (const auto columns = value.find("columns"); columns != value.end()) {
    for (const json& list : *columns) {
      const ElementRange range = RangeFrom(list, name + ": columns");
      if (!block.columns.empty() && range.begin < block.columns.back().end)
        throw BadContent{name + ": columns are not in order"};
      block.columns.push_back(range);
    }
    if (block.columns.empty()) throw BadContent{name + ": columns are none"};
  }
  block.copy = value.value("copy", false);
  return block;
}

ordered_json JsonOf(const ParameterBlock& block) {
  if (block == ParameterBlock{.name = block.name}) return block.name;
  ordered_json object = {{"name", block.name}};
  if (block.rows.size() > 0) object["rows"] = JsonOf(block.rows);
  for (const ElementRange& range : block.columns) object["columns"].push_back(JsonOf(range));
  if (block.copy) object["copy"] = true;
  return object;
}

BucketRule RuleFrom(const json& object) {
  BucketRule rule;
  for (const json& end : object.at("part_ends")) {
    const std::int64_t last = rule.size();
    rule.part_ends.push_back(CountFrom(end, "part_ends"));
    if (rule.size() < last) throw BadContent{"part_ends do not ascend"};
  }
  rule.bucket_elements = CountAt(object, "bucket_elements");
  rule.places = CountAt(object, "places");
  rule.alignment = CountAt(object, "alignment");
  if (rule.bucket_elements < 1 || rule.alignment < 1 || rule.places < 1 || rule.places > kMaxPlaces)
    throw BadContent{fmt::format("buckets of {} elements for {} places, aligned to {}, are no rule",
                                 rule.bucket_elements, rule.places, rule.alignment)};
  if (rule.BucketCount() > kMaxBuckets)
    throw BadContent{
        fmt::format("a rule of {} buckets; {} is the most", rule.BucketCount(), kMaxBuckets)};
  return rule;
}

ordered_json JsonOf(const BucketRule& rule) {
  return {{"part_ends", rule.part_ends},
          {"bucket_elements", rule.bucket_elements},
          {"places", rule.places},
          {"alignment", rule.alignment}};
}

CheckpointArena ArenaFrom(const json& object) {
  CheckpointArena arena;
  for (const json& block : object.at("blocks")) arena.blocks.push_back(BlockFrom(block));
  arena.rule = RuleFrom(object.at("rule"));
  return arena;
}

ordered_json JsonOf(const CheckpointArena& arena) {
  auto blocks = ordered_json::array();
  for (const ParameterBlock& block : arena.blocks) blocks.push_back(JsonOf(block));
  return {{"blocks", std::move(blocks)}, {"rule", JsonOf(arena.rule)}};
}

ListedPiece PieceFrom(const json& list) {
  if (!list.is_array() || list.size() != 3) throw BadContent{"a piece is not [name, begin, end]"};
  ListedPiece piece;
  list[0].get_to(piece.name);
  const std::string what = Printable(piece.name) + ": an end of a piece";
  piece.begin = CountFrom(list[1], what);
  piece.end = CountFrom(list[2], what);
  if (piece.end <= piece.begin)
    throw BadContent{
        fmt::format("{}: [{}, {}) is not a range", Printable(piece.name), piece.begin, piece.end)};
  return piece;
}

ListedPieces ListedFrom(const json& document, int version) {
  ListedPieces listed;
  std::int64_t elements = 0;
  const std::size_t arenas = version < 3 ? kResiduals : kTrainingArenas;
  for (std::size_t arena = 0; arena < arenas; ++arena) {
    for (const json& list : document.at(kTrainingArenaNames[arena])) {
      const ListedPiece& piece = listed[arena].emplace_back(PieceFrom(list));
      elements += piece.end - piece.begin;
      if (elements >= kMaxCheckpointCount) throw BadContent{"more elements than any model has"};
    }
  }
  return listed;
}

}  // namespace

ShardIndex ShardIndex::OfAll(std::int64_t step, const ParameterLayout& layout) {
  ShardIndex index;
  index.step = step;
  index.arena = CheckpointArena{BlocksOf(layout), BucketRule::Whole(layout.size(), 1)};
  index.elements = layout.size();
  return index;
}

std::int64_t ShardIndex::ElementsOf(std::size_t of) const {
  if (!listed) return of == kResiduals ? residuals : elements;
  std::int64_t sum = 0;
  for (const ListedPiece& piece : (*listed)[of]) sum += piece.end - piece.begin;
  return sum;
}

std::int64_t ShardIndex::Bytes() const {
  std::int64_t sum = 0;
  for (std::size_t of = 0; of < kTrainingArenas; ++of) sum += ElementsOf(of);
  return sum * static_cast<std::int64_t>(sizeof(float));
}

std::string IndexText(const ShardIndex& index) {
  assert(!index.listed);
  ordered_json document = {{"format_version", kCheckpointFormatVersion},
                           {"step", index.step},
                           {"arena_of", index.arena_of}};
  if (index.arena) document["arena"] = JsonOf(*index.arena);
  document["place"] = index.place;
  document["elements"] = index.elements;
  document["residuals"] = index.residuals;
  auto hashes = ordered_json::array();
  for (const std::uint64_t hash : index.block_hashes)
    hashes.push_back(checkpoint_json::HashText(hash));
  document["block_xxh3"] = std::move(hashes);
  return document.dump(-1, ' ', false, json::error_handler_t::replace) + "\n";
}

Result<ShardIndex> ParseIndex(std::string_view text, const std::string& what) {
  return checkpoint_json::Parse<ShardIndex>(text, what, [](const json& document, int version) {
    ShardIndex index;
    index.step = CountAt(document, "step");
    if (version < 4) {
      index.listed = ListedFrom(document, version);
    } else {
      index.arena_of = CountAt(document, "arena_of");
      if (document.contains("arena")) index.arena = ArenaFrom(document.at("arena"));
      index.place = CountAt(document, "place");
      index.elements = CountAt(document, "elements");
      index.residuals = CountAt(document, "residuals");
    }
    for (const json& hash : document.at("block_xxh3")) index.block_hashes.push_back(HashFrom(hash));
    const std::int64_t blocks = (index.Bytes() + kCheckpointBlockBytes - 1) / kCheckpointBlockBytes;
    if (static_cast<std::int64_t>(index.block_hashes.size()) != blocks)
      throw BadContent{fmt::format("{} hashes for {} blocks", index.block_hashes.size(), blocks)};
    return index;
  });
}

}  // namespace adaptive_train
