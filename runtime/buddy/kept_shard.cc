#include "runtime/buddy/kept_shard.h"

#include <fmt/format.h>

#include <cinttypes>
#include <cstdio>
#include <map>
#include <utility>

#include "runtime/checkpoint/checkpoint_json.h"

namespace adaptive_train {
namespace {

using checkpoint_json::BadContent;
using checkpoint_json::CountAt;
using nlohmann::json;
using nlohmann::ordered_json;

constexpr std::int64_t kMostRanks = std::int64_t{1} << 20;

int NumberAt(const json& object, const char* key) {
  const std::int64_t number = CountAt(object, key);
  if (number > kMostRanks) throw BadContent{fmt::format("{} is {}", key, number)};
  return static_cast<int>(number);
}

struct Line {
  KeptEntry entry;
  std::uint64_t hash = 0;
};

Result<Line> ParseLine(std::string_view line, const std::string& what) {
  return checkpoint_json::Parse<Line>(line, what, [](const json& object, int) {
    Line read;
    KeptEntry& entry = read.entry;
    entry.attempt = CountAt(object, "attempt");
    entry.step = CountAt(object, "step");
    entry.kind = object.at("kind") == "state" ? KeptKind::kState : KeptKind::kOwnResiduals;
    entry.rank = NumberAt(object, "rank");
    entry.ranks = NumberAt(object, "ranks");
    entry.arenas = NumberAt(object, "arenas");
    entry.slot = NumberAt(object, "slot");
    entry.residuals = object.at("residuals").get<bool>();
    entry.part.arena_of = NumberAt(object, "arena_of");
    entry.part.cover = NumberAt(object, "cover");
    entry.part.place = NumberAt(object, "place");
    entry.part.places = NumberAt(object, "places");
    entry.header_bytes = CountAt(object, "header_bytes");
    read.hash = checkpoint_json::HashFrom(object.at("xxh3"));
    return read;
  });
}

std::string LineOf(const KeptEntry& entry, std::uint64_t hash) {
  const ordered_json line = {{"format_version", kCheckpointFormatVersion},
                             {"attempt", entry.attempt},
                             {"step", entry.step},
                             {"kind", entry.kind == KeptKind::kState ? "state" : "residuals"},
                             {"rank", entry.rank},
                             {"ranks", entry.ranks},
                             {"arenas", entry.arenas},
                             {"slot", entry.slot},
                             {"residuals", entry.residuals},
                             {"arena_of", entry.part.arena_of},
                             {"cover", entry.part.cover},
                             {"place", entry.part.place},
                             {"places", entry.part.places},
                             {"header_bytes", entry.header_bytes},
                             {"xxh3", checkpoint_json::HashText(hash)}};
  return line.dump();
}

}  // namespace

std::string KeptEntry::FileName() const {
  return fmt::format("attempt-{}-rank-{}-{}-{}", attempt, rank,
                     kind == KeptKind::kState ? "state" : "residuals", slot);
}

std::optional<KeptEntry> KeptEntry::OfFileName(const std::string& name) {
  KeptEntry entry;
  char kind[16] = {};
  if (std::sscanf(name.c_str(), "attempt-%" SCNd64 "-rank-%d-%15[a-z]-%d", &entry.attempt,
                  &entry.rank, kind, &entry.slot) != 4)
    return std::nullopt;
  if (std::string_view(kind) == "residuals") entry.kind = KeptKind::kOwnResiduals;
  if (entry.FileName() != name) return std::nullopt;
  return entry;
}

std::vector<ShardIndex> Renumbered(const std::vector<KeptShard>& shards) {
  std::vector<ShardIndex> indices;
  std::map<std::pair<KeptKind, std::int64_t>, std::int64_t> first;
  for (const KeptShard& shard : shards) {
    ShardIndex& index = indices.emplace_back(shard.index);
    const auto number = static_cast<std::int64_t>(indices.size()) - 1;
    const auto [at, is_new] = first.try_emplace({shard.entry.kind, index.arena_of}, number);
    index.arena_of = at->second;
    if (!is_new) index.arena.reset();
  }
  return indices;
}

std::string KeptLine(const KeptEntry& entry) { return LineOf(entry, 0); }

Result<std::string> KeptText(const KeptShard& shard) {
  auto manifest = ManifestText({shard.at, {}, {}});
  if (!manifest) return manifest;
  const std::string rest = IndexText(shard.index) + *manifest;
  return LineOf(shard.entry, HashOf(rest)) + "\n" + rest;
}

Result<KeptEntry> ParseKeptEntry(std::string_view line, const std::string& what) {
  auto read = ParseLine(line, what);
  if (!read) return tl::unexpected(read.error());
  return read->entry;
}

Result<KeptShard> ParseKeptShard(std::string_view text, const std::string& what) {
  using std::string_view_literals::operator""sv;
  const std::size_t end = text.find_last_not_of(" \0"sv);
  text = text.substr(0, end == std::string_view::npos ? 0 : end + 1);
  const std::size_t first = text.find('\n');
  const std::size_t second = first == std::string_view::npos ? first : text.find('\n', first + 1);
  if (second == std::string_view::npos) return Fail(what + ": cut off", ExitCode::kRankFailure);
  auto line = ParseLine(text.substr(0, first), what);
  if (!line) return tl::unexpected(line.error());
  if (HashOf(text.substr(first + 1)) != line->hash)
    return Fail(what + ": does not fit its hash", ExitCode::kRankFailure);
  auto index = ParseIndex(text.substr(first + 1, second - first), what);
  if (!index) return tl::unexpected(index.error());
  auto manifest = ParseManifest(text.substr(second + 1), what);
  if (!manifest) return tl::unexpected(manifest.error());
  if (!index->arena || index->step != line->entry.step || manifest->at.step != index->step)
    return Fail(what + ": is not of one step and one arena", ExitCode::kRankFailure);
  return KeptShard{line->entry, std::move(*index), std::move(manifest->at)};
}

}  // namespace adaptive_train
