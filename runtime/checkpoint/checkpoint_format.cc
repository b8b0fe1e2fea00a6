#include "runtime/checkpoint/checkpoint_format.h"

#include <fmt/format.h>
#include <xxhash.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstddef>
#include <nlohmann/json.hpp>
#include <unordered_set>

#include "core/file_io.h"
#include "core/json.h"

namespace adaptive_train {
namespace {

using nlohmann::json;
using nlohmann::ordered_json;

/// Counts stay below this, so that no sum or product of sizes in bytes can overflow.
constexpr std::int64_t kMaxCount = std::int64_t{1} << 53;

/// A fault in the content of an otherwise well-formed document; becomes a Result's error.
struct BadContent {
  std::string why;
};

std::int64_t CountAt(const json& object, const char* key) {
  const json& value = object.at(key);
  if (!value.is_number_unsigned() || value.get<std::uint64_t>() >= std::uint64_t{kMaxCount})
    throw BadContent{fmt::format("{} is not a count", key)};
  return value.get<std::int64_t>();
}

std::uint64_t HashFrom(const json& value) {
  const auto& text = value.get_ref<const std::string&>();
  std::uint64_t hash = 0;
  const auto [last, error] = std::from_chars(text.data(), text.data() + text.size(), hash, 16);
  if (error != std::errc() || last != text.data() + text.size() || text.size() != 16)
    throw BadContent{fmt::format("\"{}\" is not a hash", Printable(text))};
  return hash;
}

std::string HashText(std::uint64_t hash) { return fmt::format("{:016x}", hash); }

/// The version of a document, if it is one that is read.
int VersionOf(const json& document) {
  const json& version = document.at("format_version");
  for (int known = kOldestCheckpointFormatVersion; known <= kCheckpointFormatVersion; ++known)
    if (version == known) return known;
  throw BadContent{fmt::format("format_version {} is not one that this program reads ({} to {})",
                               InWords(version), kOldestCheckpointFormatVersion,
                               kCheckpointFormatVersion)};
}

/// Parses `text`, checks the version and lets `read` make a T of document and version.
template <class T, class Read>
Result<T> Parse(std::string_view text, const std::string& what, Read read) {
  try {
    const json document = json::parse(text);
    if (!document.is_object()) throw BadContent{"not a JSON object"};
    return read(document, VersionOf(document));
  } catch (const json::exception& error) {
    return Fail(what + ": " + InWords(error), ExitCode::kRankFailure);
  } catch (const BadContent& error) {
    return Fail(what + ": " + error.why, ExitCode::kRankFailure);
  }
}

CheckpointParameter ParameterFrom(const json& object) {
  CheckpointParameter parameter;
  object.at("name").get_to(parameter.name);
  parameter.count = 1;
  for (const json& dimension : object.at("shape")) {
    if (!dimension.is_number_unsigned() ||
        dimension.get<std::uint64_t>() >= std::uint64_t{kMaxCount})
      throw BadContent{Printable(parameter.name) + ": a dimension is not a count"};
    const auto extent = dimension.get<std::int64_t>();
    if (extent > 0 && parameter.count > kMaxCount / extent)
      throw BadContent{Printable(parameter.name) + ": more elements than any model has"};
    parameter.count *= extent;
    parameter.shape.push_back(extent);
  }
  return parameter;
}

CheckpointPiece PieceFrom(const json& list) {
  if (!list.is_array() || list.size() != 3) throw BadContent{"a piece is not [name, begin, end]"};
  CheckpointPiece piece;
  list[0].get_to(piece.name);
  if (!list[1].is_number_unsigned() || !list[2].is_number_unsigned())
    throw BadContent{Printable(piece.name) + ": a piece's ends are not counts"};
  piece.begin = list[1].get<std::int64_t>();
  piece.end = list[2].get<std::int64_t>();
  if (piece.begin < 0 || piece.end <= piece.begin || piece.end >= kMaxCount)
    throw BadContent{
        fmt::format("{}: [{}, {}) is not a range", Printable(piece.name), piece.begin, piece.end)};
  return piece;
}

CheckpointStep StepFrom(const json& document) {
  CheckpointStep at;
  at.step = CountAt(document, "step");
  at.updates = CountAt(document, "updates");
  document.at("identity").get_to(at.identity);
  if (!document.at("extra").is_object()) throw BadContent{"extra is not a JSON object"};
  for (const auto& [name, value] : document.at("extra").items()) {
    if (!value.is_number()) throw BadContent{"extra: " + Printable(name) + " is not a number"};
    at.extra[name] = value.get<double>();
  }
  if (document.contains("settings")) {
    document.at("settings").get_to(at.settings);
  } else {
    at.settings = TakeSettings(at.identity);
  }
  return at;
}

}  // namespace

std::int64_t ShardIndex::Bytes() const {
  std::int64_t elements = 0;
  for (const auto& arena : pieces)
    for (const CheckpointPiece& piece : arena) elements += piece.end - piece.begin;
  return elements * static_cast<std::int64_t>(sizeof(float));
}

ElementRange PartOf(std::int64_t elements, std::int64_t part, std::int64_t parts) {
  const std::int64_t each = elements / parts, rest = elements % parts;
  const auto begin_of = [&](std::int64_t i) { return i * each + std::min(i, rest); };
  return {begin_of(part), begin_of(part + 1)};
}

std::vector<CheckpointParameter> ParametersOf(const ParameterLayout& layout) {
  std::vector<CheckpointParameter> parameters;
  for (const ParameterRange& range : layout.ranges())
    parameters.push_back({range.name, range.shape, range.count});
  return parameters;
}

std::vector<CheckpointPiece> PiecesOf(const ParameterLayout& layout, const ElementRanges& ranges) {
  std::vector<CheckpointPiece> pieces;
  for (const ElementRange& range : ranges) {
    for (const ParameterRange& parameter : layout.ranges()) {
      const std::int64_t begin = std::max(range.begin, parameter.offset);
      const std::int64_t end = std::min(range.end, parameter.offset + parameter.count);
      if (begin < end)
        pieces.push_back({parameter.name, begin - parameter.offset, end - parameter.offset});
    }
  }
  return pieces;
}

std::uint64_t HashOf(std::span<const std::byte> bytes) {
  return XXH3_64bits(bytes.data(), bytes.size());
}

std::uint64_t HashOf(std::string_view text) { return XXH3_64bits(text.data(), text.size()); }

Result<std::string> ManifestText(const CheckpointManifest& manifest) {
  for (const auto& [name, value] : manifest.at.extra) {
    if (!std::isfinite(value))
      return Fail(fmt::format("{} is {}; a checkpoint keeps finite numbers", name, value),
                  ExitCode::kRankFailure);
  }
  auto parameters = ordered_json::array();
  for (const auto& parameter : manifest.parameters)
    parameters.push_back({{"name", parameter.name}, {"shape", parameter.shape}});
  auto shards = ordered_json::array();
  for (const auto& shard : manifest.shards)
    shards.push_back({{"bytes", shard.bytes}, {"index_xxh3", HashText(shard.index_hash)}});
  auto extra = ordered_json::object();
  for (const auto& [name, value] : manifest.at.extra) extra[name] = value;
  const ordered_json document = {{"format_version", kCheckpointFormatVersion},
                                 {"step", manifest.at.step},
                                 {"updates", manifest.at.updates},
                                 {"identity", manifest.at.identity},
                                 {"settings", manifest.at.settings},
                                 {"extra", std::move(extra)},
                                 {"shards", std::move(shards)},
                                 {"parameters", std::move(parameters)}};
  return document.dump(1, ' ', false, json::error_handler_t::replace) + "\n";
}

std::string IndexText(const ShardIndex& index) {
  ordered_json document = {{"format_version", kCheckpointFormatVersion}, {"step", index.step}};
  for (std::size_t arena = 0; arena < kTrainingArenas; ++arena) {
    auto pieces = ordered_json::array();
    for (const CheckpointPiece& piece : index.pieces[arena])
      pieces.push_back(ordered_json::array({piece.name, piece.begin, piece.end}));
    document[kTrainingArenaNames[arena]] = std::move(pieces);
  }
  auto hashes = ordered_json::array();
  for (const std::uint64_t hash : index.block_hashes) hashes.push_back(HashText(hash));
  document["block_xxh3"] = std::move(hashes);
  return document.dump(-1, ' ', false, json::error_handler_t::replace) + "\n";
}

std::string DoneText(std::string_view manifest_text) {
  return "manifest.json xxh3 " + HashText(HashOf(manifest_text)) + "\n";
}

Result<CheckpointManifest> ParseManifest(std::string_view text, const std::string& what) {
  return Parse<CheckpointManifest>(text, what, [](const json& document, int) {
    CheckpointManifest manifest;
    manifest.at = StepFrom(document);
    std::unordered_set<std::string> names;
    std::int64_t elements = 0;
    for (const json& object : document.at("parameters")) {
      manifest.parameters.push_back(ParameterFrom(object));
      const CheckpointParameter& parameter = manifest.parameters.back();
      if (!names.insert(parameter.name).second)
        throw BadContent{Printable(parameter.name) + " is listed twice"};
      elements += parameter.count;
      if (elements >= kMaxCount) throw BadContent{"more elements than any model has"};
    }
    for (const json& object : document.at("shards"))
      manifest.shards.push_back({CountAt(object, "bytes"), HashFrom(object.at("index_xxh3"))});
    return manifest;
  });
}

Result<ShardIndex> ParseIndex(std::string_view text, const std::string& what) {
  return Parse<ShardIndex>(text, what, [](const json& document, int version) {
    ShardIndex index;
    index.step = CountAt(document, "step");
    std::int64_t elements = 0;
    const std::size_t arenas = version < 3 ? kResiduals : kTrainingArenas;
    for (std::size_t arena = 0; arena < arenas; ++arena) {
      for (const json& list : document.at(kTrainingArenaNames[arena])) {
        index.pieces[arena].push_back(PieceFrom(list));
        elements += index.pieces[arena].back().end - index.pieces[arena].back().begin;
        if (elements >= kMaxCount) throw BadContent{"more elements than any model has"};
      }
    }
    for (const json& hash : document.at("block_xxh3")) index.block_hashes.push_back(HashFrom(hash));
    const std::int64_t blocks = (index.Bytes() + kCheckpointBlockBytes - 1) / kCheckpointBlockBytes;
    if (static_cast<std::int64_t>(index.block_hashes.size()) != blocks)
      throw BadContent{fmt::format("{} hashes for {} blocks", index.block_hashes.size(), blocks)};
    return index;
  });
}

std::string ShardName(std::size_t number) { return fmt::format("shard-{:05}", number); }

std::string StepName(std::int64_t step) { return fmt::format("step-{:08}", step); }

std::int64_t StepOfName(std::string_view name) {
  constexpr std::string_view kPrefix = "step-";
  std::int64_t step = -1;
  if (name.substr(0, kPrefix.size()) != kPrefix) return -1;
  const auto [last, error] =
      std::from_chars(name.data() + kPrefix.size(), name.data() + name.size(), step);
  return error == std::errc() && step >= 0 && StepName(step) == name ? step : -1;
}

}  // namespace adaptive_train
