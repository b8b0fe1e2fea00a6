#include "runtime/checkpoint/checkpoint_coverage.h"

#include <fmt/format.h>

#include <cstddef>
#include <map>
#include <string>
#include <utility>

#include "core/file_io.h"
#include "runtime/checkpoint/checkpoint_tiling.h"

namespace adaptive_train {
namespace {

tl::unexpected<Error> FailCoverage(const std::string& why) {
  return Fail(why, ExitCode::kRankFailure);
}

std::string NameOf(std::int64_t shard) { return ShardName(static_cast<std::size_t>(shard)); }

/// Each place of an arena's rule is one shard.
Result<void> CheckPlaces(const std::vector<ShardIndex>& indices) {
  std::map<std::pair<std::int64_t, std::int64_t>, std::int64_t> shards;  // by arena and place
  std::map<std::int64_t, std::int64_t> places;                           // taken of each arena
  const auto count = static_cast<std::int64_t>(indices.size());
  for (std::int64_t shard = 0; shard < count; ++shard) {
    const ShardIndex& index = indices[static_cast<std::size_t>(shard)];
    const std::int64_t of = index.arena_of;
    if (of >= count || !indices[static_cast<std::size_t>(of)].arena)
      return FailCoverage(fmt::format("{}: arena_of is {}, which has no arena", NameOf(shard), of));
    if (index.arena && of != shard)
      return FailCoverage(
          fmt::format("{}: has an arena and names that of {}", NameOf(shard), NameOf(of)));
    const BucketRule& rule = indices[static_cast<std::size_t>(of)].arena->rule;
    if (index.place >= rule.places)
      return FailCoverage(
          fmt::format("{}: place {}, the rule has {}", NameOf(shard), index.place, rule.places));
    const auto [other, first] = shards.try_emplace({of, index.place}, shard);
    if (!first)
      return FailCoverage(fmt::format("{} and {} are both place {} of {}'s arena",
                                      NameOf(other->second), NameOf(shard), index.place,
                                      NameOf(of)));
    ++places[of];
  }
  for (const auto& [of, taken] : places) {
    const std::int64_t all = indices[static_cast<std::size_t>(of)].arena->rule.places;
    if (taken < all)
      return FailCoverage(fmt::format("{} of {} places of {}'s arena are in no shard", all - taken,
                                      all, NameOf(of)));
  }
  return {};
}

void Add(HeldRectangles& held, const ArenaMap::Block& block, std::size_t shard) {
  for (const ElementRange& columns : block.columns)
    held[block.parameter].push_back({block.rows, columns, shard});
}

/// The arenas are of the model, none holds an element twice, and together they hold all but their
/// copies once. Gives them by the shards that describe them.
Result<std::map<std::int64_t, ArenaMap>> CheckArenas(
    const std::vector<CheckpointParameter>& parameters, const std::vector<ShardIndex>& indices) {
  const ModelPlaces places(parameters);
  std::map<std::int64_t, ArenaMap> arenas;
  HeldRectangles written(parameters.size());
  for (std::size_t shard = 0; shard < indices.size(); ++shard) {
    if (!indices[shard].arena) continue;
    auto map = ArenaMap::Of(places, indices[shard].arena->blocks);
    if (!map) return FailCoverage(ShardName(shard) + ": " + map.error().message);
    const std::int64_t cut = indices[shard].arena->rule.size();
    if (cut != map->size())
      return FailCoverage(fmt::format("{}: a rule for {} elements, the arena has {}",
                                      ShardName(shard), cut, map->size()));
    HeldRectangles held(parameters.size());
    for (const ArenaMap::Block& block : map->blocks()) {
      Add(held, block, shard);
      if (!block.copy) Add(written, block, shard);
    }
    auto once = CheckNoneTwice(parameters, held, "");
    if (!once) return tl::unexpected(once.error());
    arenas.emplace(static_cast<std::int64_t>(shard), std::move(*map));
  }
  auto tiled = CheckTiled(parameters, written, "");
  if (!tiled) return tl::unexpected(tiled.error());
  return arenas;
}

std::int64_t CountWithoutCopies(const ArenaMap& arena, const ElementRanges& ranges) {
  std::int64_t count = 0;
  for (const ElementRange& range : arena.WithoutCopies(ranges)) count += range.size();
  return count;
}

/// The shards' numbers of elements are what the rules say.
Result<void> CheckElements(const std::vector<ShardIndex>& indices,
                           const std::map<std::int64_t, ArenaMap>& arenas) {
  for (std::size_t shard = 0; shard < indices.size(); ++shard) {
    const ShardIndex& index = indices[shard];
    const ArenaMap& arena = arenas.at(index.arena_of);
    const BucketRule& rule = indices[static_cast<std::size_t>(index.arena_of)].arena->rule;
    const std::int64_t owned = CountWithoutCopies(arena, rule.OwnedBy(index.place));
    if (index.elements != owned)
      return FailCoverage(fmt::format("{}: {} elements, its place has {}", ShardName(shard),
                                      index.elements, owned));
    const std::int64_t all = CountWithoutCopies(arena, {{0, arena.size()}});
    if (index.residuals != 0 && index.residuals != all)
      return FailCoverage(fmt::format("{}: {} elements of residuals, the arena has {}",
                                      ShardName(shard), index.residuals, all));
  }
  return {};
}

Result<void> AddListed(HeldRectangles& held, const std::vector<CheckpointParameter>& parameters,
                       const ModelPlaces& places, const std::vector<ListedPiece>& pieces,
                       std::size_t shard) {
  for (const ListedPiece& piece : pieces) {
    const ModelPlaces::Parameter* parameter = places.Find(piece.name);
    if (parameter == nullptr)
      return FailCoverage(fmt::format("{}: \"{}\" is not a parameter of the model",
                                      ShardName(shard), Printable(piece.name)));
    const std::int64_t count = parameters[parameter->number].count;
    if (piece.end > count)
      return FailCoverage(fmt::format("{}: elements of {} up to {}, the parameter has {}",
                                      ShardName(shard), Printable(piece.name), piece.end, count));
    held[parameter->number].push_back({{0, 1}, {piece.begin, piece.end}, shard});
  }
  return {};
}

/// Formats 2 and 3: as a listed piece may begin anywhere, parameters are seen as single rows.
Result<void> CheckListed(std::vector<CheckpointParameter> parameters,
                         const std::vector<ShardIndex>& indices) {
  for (CheckpointParameter& parameter : parameters) parameter.shape = {parameter.count};
  const ModelPlaces places(parameters);
  for (std::size_t arena = 0; arena < kTrainingArenas; ++arena) {
    const std::string of = std::string(kTrainingArenaNames[arena]) + " of ";
    HeldRectangles held(parameters.size());
    for (std::size_t shard = 0; shard < indices.size(); ++shard) {
      if (!indices[shard].listed)
        return FailCoverage(ShardName(shard) + ": of another format than shard-00000");
      if (arena == kResiduals) held.assign(parameters.size(), {});
      auto fits = AddListed(held, parameters, places, (*indices[shard].listed)[arena], shard);
      if (fits && arena == kResiduals) fits = CheckNoneTwice(parameters, held, of);
      if (!fits) return fits;
    }
    if (arena == kResiduals) continue;
    auto tiled = CheckTiled(parameters, held, of);
    if (!tiled) return tiled;
  }
  return {};
}

}  // namespace

Result<void> CheckCoverage(const std::vector<CheckpointParameter>& parameters,
                           const std::vector<ShardIndex>& indices) {
  if (!indices.empty() && indices[0].listed) return CheckListed(parameters, indices);
  for (std::size_t shard = 0; shard < indices.size(); ++shard) {
    if (indices[shard].listed)
      return FailCoverage(ShardName(shard) + ": of another format than shard-00000");
  }
  auto placed = CheckPlaces(indices);
  if (!placed) return placed;
  auto arenas = CheckArenas(parameters, indices);
  if (!arenas) return tl::unexpected(arenas.error());
  return CheckElements(indices, *arenas);
}

}  // namespace adaptive_train
