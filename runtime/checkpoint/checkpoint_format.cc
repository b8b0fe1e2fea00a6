#include "runtime/checkpoint/checkpoint_format.h"

#include <fmt/format.h>
#include <xxhash.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstddef>
#include <unordered_set>

#include "core/file_io.h"
#include "runtime/checkpoint/checkpoint_json.h"

namespace adaptive_train {
namespace {

using checkpoint_json::BadContent;
using checkpoint_json::CountAt;
using checkpoint_json::HashFrom;
using checkpoint_json::HashText;
using nlohmann::json;
using nlohmann::ordered_json;

CheckpointParameter ParameterFrom(const json& object) {
  CheckpointParameter parameter;
  object.at("name").get_to(parameter.name);
  parameter.count = 1;
  for (const json& dimension : object.at("shape")) {
    const std::int64_t extent =
        checkpoint_json::CountFrom(dimension, Printable(parameter.name) + ": a dimension");
    if (extent > 0 && parameter.count > kMaxCheckpointCount / extent)
      throw BadContent{Printable(parameter.name) + ": more elements than any model has"};
    parameter.count *= extent;
    parameter.shape.push_back(extent);
  }
  return parameter;
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

std::string DoneText(std::string_view manifest_text) {
  return "manifest.json xxh3 " + HashText(HashOf(manifest_text)) + "\n";
}

Result<CheckpointManifest> ParseManifest(std::string_view text, const std::string& what) {
  return checkpoint_json::Parse<CheckpointManifest>(text, what, [](const json& document, int) {
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
      if (elements >= kMaxCheckpointCount) throw BadContent{"more elements than any model has"};
    }
    for (const json& object : document.at("shards"))
      manifest.shards.push_back({CountAt(object, "bytes"), HashFrom(object.at("index_xxh3"))});
    return manifest;
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
