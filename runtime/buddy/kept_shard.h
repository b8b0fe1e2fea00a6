// One rank's part of a training state as it is kept in memory: what it is of, in words that precede
// its bytes.
//
//   line 1   JSON: see KeptEntry, and the XXH3 of what follows
//   line 2   the index of a checkpoint's shard (checkpoint_index.h), with its arena
//   rest     a checkpoint's manifest without parameters and shards (checkpoint_format.h)
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/keeping_rule.h"
#include "core/result.h"
#include "runtime/checkpoint/checkpoint_index.h"

namespace adaptive_train {

enum class KeptKind : std::uint8_t { kState, kOwnResiduals };

/// What must be known of a kept part to judge whether a state is complete.
struct KeptEntry {
  std::int64_t attempt = 0;  // launch of the run
  std::int64_t step = 0;     // optimizer steps done
  KeptKind kind = KeptKind::kState;
  int rank = 0;                   // that has made it, of that attempt
  int ranks = 1;                  // of that attempt
  int arenas = 1;                 // that the model's state is in
  int slot = 0;                   // of kKeptSlots
  bool residuals = false;         // every rank keeps some
  KeptPart part = {};             // without its buddy
  std::int64_t header_bytes = 0;  // of the file, before the part's bytes

  /// The name of its file: attempt, rank, kind and slot.
  std::string FileName() const;
  /// These four of a file's name; nothing for any other name.
  static std::optional<KeptEntry> OfFileName(const std::string& name);
};

struct KeptShard {
  KeptEntry entry;
  ShardIndex index;
  CheckpointStep at;
};

/// The shards' indices, numbered by their places in the list as those of a checkpoint.
std::vector<ShardIndex> Renumbered(const std::vector<KeptShard>& shards);

/// A line of what is found, without the end of the line and without a hash.
std::string KeptLine(const KeptEntry& entry);
/// The words of a shard. Fails where `at` has numbers that are not finite.
Result<std::string> KeptText(const KeptShard& shard);
/// The first line read again, or all of it: untrusted; what follows the manifest as spaces or zeros
/// is ignored. `what` names the shard in messages.
Result<KeptEntry> ParseKeptEntry(std::string_view line, const std::string& what);
Result<KeptShard> ParseKeptShard(std::string_view text, const std::string& what);

}  // namespace adaptive_train
