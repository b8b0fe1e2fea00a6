#include "runtime/checkpoint/checkpoint_coverage.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <string>
#include <string_view>
#include <tuple>
#include <unordered_map>

#include "core/file_io.h"

namespace adaptive_train {
namespace {

/// A piece of one parameter in one arena, and which shard it is in.
struct PlacedPiece {
  std::int64_t begin;
  std::int64_t end;
  std::size_t shard;
};

tl::unexpected<Error> FailCoverage(const std::string& why) {
  return Fail(why, ExitCode::kRankFailure);
}

tl::unexpected<Error> FailTwice(const std::string& place, const PlacedPiece& first,
                                const PlacedPiece& second) {
  return FailCoverage(fmt::format("{}: elements [{}, {}) are in {} and again in {}", place,
                                  second.begin, std::min(first.end, second.end),
                                  ShardName(first.shard), ShardName(second.shard)));
}

tl::unexpected<Error> FailBeyond(const std::string& place, std::int64_t count,
                                 const PlacedPiece& piece) {
  return FailCoverage(fmt::format("{}: {} has elements up to {}, the parameter has {}", place,
                                  ShardName(piece.shard), piece.end, count));
}

/// Every element of the parameter is in one shard.
Result<void> CheckOnce(const std::string& place, std::int64_t count,
                       std::vector<PlacedPiece>& pieces) {
  std::sort(pieces.begin(), pieces.end(), [](const PlacedPiece& a, const PlacedPiece& b) {
    return std::tie(a.begin, a.shard) < std::tie(b.begin, b.shard);
  });
  PlacedPiece last{0, 0, 0};
  const auto missing = [&](std::int64_t end) {
    return FailCoverage(fmt::format("{}: elements [{}, {}) are in no shard", place, last.end, end));
  };
  for (const PlacedPiece& piece : pieces) {
    if (piece.begin > last.end) return missing(piece.begin);
    if (piece.begin < last.end) return FailTwice(place, last, piece);
    last = piece;
  }
  if (last.end < count) return missing(count);
  if (last.end > count) return FailBeyond(place, count, last);
  return {};
}

/// Every shard has an element of the parameter once at most.
Result<void> CheckOncePerShard(const std::string& place, std::int64_t count,
                               std::vector<PlacedPiece>& pieces) {
  std::sort(pieces.begin(), pieces.end(), [](const PlacedPiece& a, const PlacedPiece& b) {
    return std::tie(a.shard, a.begin) < std::tie(b.shard, b.begin);
  });
  for (std::size_t i = 0; i < pieces.size(); ++i) {
    if (pieces[i].end > count) return FailBeyond(place, count, pieces[i]);
    if (i == 0 || pieces[i].shard != pieces[i - 1].shard) continue;
    if (pieces[i].begin < pieces[i - 1].end) return FailTwice(place, pieces[i - 1], pieces[i]);
  }
  return {};
}

Result<void> CheckArena(const std::vector<CheckpointParameter>& parameters,
                        const std::vector<ShardIndex>& indices, std::size_t arena) {
  std::unordered_map<std::string_view, std::vector<PlacedPiece>> by_name;
  for (const CheckpointParameter& parameter : parameters) by_name[parameter.name];
  for (std::size_t shard = 0; shard < indices.size(); ++shard) {
    for (const CheckpointPiece& piece : indices[shard].pieces[arena]) {
      const auto found = by_name.find(piece.name);
      if (found == by_name.end()) {
        return FailCoverage(fmt::format("{}: \"{}\" is not a parameter of the manifest",
                                        ShardName(shard), Printable(piece.name)));
      }
      found->second.push_back({piece.begin, piece.end, shard});
    }
  }
  const auto check = arena == kResiduals ? CheckOncePerShard : CheckOnce;
  for (const CheckpointParameter& parameter : parameters) {
    auto checked = check(fmt::format("{} of {}", kTrainingArenaNames[arena], parameter.name),
                         parameter.count, by_name[parameter.name]);
    if (!checked) return checked;
  }
  return {};
}

}  // namespace

Result<void> CheckCoverage(const std::vector<CheckpointParameter>& parameters,
                           const std::vector<ShardIndex>& indices) {
  for (std::size_t arena = 0; arena < kTrainingArenas; ++arena) {
    auto checked = CheckArena(parameters, indices, arena);
    if (!checked) return checked;
  }
  return {};
}

}  // namespace adaptive_train
