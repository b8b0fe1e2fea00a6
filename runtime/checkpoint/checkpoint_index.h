// shard-0000N.json: what a shard's .bin holds.
//
//   format_version  4
//   step            of the checkpoint
//   arena_of        number of the shard whose `arena` describes this one's: that of the lowest rank
//                   with the same arena, which may be the shard itself
//   arena           only in that shard's index:
//     blocks        of the arena in its order: "NAME" is a parameter in whole; {"name", "rows":
//                   [begin, end], "columns": [[begin, end], ...], "copy": true} a strided block of
//                   one, see ParameterBlock; what is left out is all rows, all columns, false
//     rule          part_ends, bucket_elements, places, alignment: see BucketRule
//   place           of this shard in the rule
//   elements        in each of the three arenas of the state: what the place owns, less copies
//   residuals       elements of residuals: all of the arena but copies, or 0
//   block_xxh3      of every kCheckpointBlockBytes of the .bin
//
// The .bin holds of parameters, first moments and second moments each the elements of its place, in
// the order of the arena, then the residuals. Nothing is written by bucket, so that the indices of
// all shards together have as many numbers as there are ranks, parameters and hashes.
//
// Formats 2 and 3 listed for each of the four the pieces of parameters, as [name, begin, end].
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/result.h"
#include "runtime/checkpoint/checkpoint_arena.h"
#include "runtime/checkpoint/checkpoint_format.h"

namespace adaptive_train {

/// Elements [begin, end) of a parameter, counted within it. Of formats 2 and 3.
struct ListedPiece {
  std::string name;
  std::int64_t begin = 0;
  std::int64_t end = 0;

  bool operator==(const ListedPiece&) const = default;
};
using ListedPieces = std::array<std::vector<ListedPiece>, kTrainingArenas>;

struct ShardIndex {
  std::int64_t step = 0;
  std::int64_t arena_of = 0;
  std::optional<CheckpointArena> arena;
  std::int64_t place = 0;
  std::int64_t elements = 0;
  std::int64_t residuals = 0;
  std::vector<std::uint64_t> block_hashes;
  /// Instead of all between step and hashes, in formats 2 and 3.
  std::optional<ListedPieces> listed;

  /// Shard 0 of a checkpoint that has no other, without residuals.
  static ShardIndex OfAll(std::int64_t step, const ParameterLayout& layout);

  /// Elements of one of the training arenas in the .bin.
  std::int64_t ElementsOf(std::size_t of) const;
  /// Bytes of the .bin.
  std::int64_t Bytes() const;
};

/// The text of an index that lists no pieces.
std::string IndexText(const ShardIndex& index);

/// The text read again: untrusted; what comes back is consistent in itself (the rule is one, ranges
/// are in order, one hash per block). Whether it fits model and other shards is CheckCoverage's.
/// `what` names the file in messages.
Result<ShardIndex> ParseIndex(std::string_view text, const std::string& what);

}  // namespace adaptive_train
