#include "runtime/buddy/kept_checkpoint.h"

#include <fmt/format.h>

#include <limits>
#include <random>
#include <utility>
#include <vector>

#include "core/exit_code.h"
#include "runtime/buddy/inventory.h"
#include "runtime/buddy/kept_slot.h"
#include "runtime/checkpoint/checkpoint_files.h"
#include "runtime/checkpoint/checkpoint_shard.h"

namespace adaptive_train {
namespace {

std::vector<FoundState> StatesIn(const std::string& kept) {
  std::vector<KeptEntry> parts;
  for (KeptEntry& entry : WholeParts(kept, std::numeric_limits<std::int64_t>::max())) {
    if (entry.kind != KeptKind::kState) continue;
    entry.residuals = false;
    parts.push_back(std::move(entry));
  }
  return CompleteStates({std::move(parts)});
}

struct OpenState {
  std::vector<KeptFile> files;
  std::vector<KeptShard> shards;
};

/// With the hashes of all blocks checked.
Result<OpenState> Open(const std::string& kept, const FoundState& state) {
  OpenState open;
  for (const FoundShard& found : state.shards) {
    const std::string path = kept + "/" + found.entry.FileName();
    auto file = KeptFile::Open(path);
    if (!file) return tl::unexpected(file.error());
    auto shard = ParseKeptShard(file->text(), path);
    if (!shard) return tl::unexpected(shard.error());
    if (shard->entry.step != state.step) return FailAt(path, "is of another step by now");
    const std::vector<std::uint64_t>& hashes = shard->index.block_hashes;
    for (std::size_t block = 0; block < hashes.size(); ++block)
      if (HashOf(file->Block(block)) != hashes[block])
        return FailAt(path, fmt::format("block {} does not fit its hash", block));
    open.files.push_back(std::move(*file));
    open.shards.push_back(std::move(*shard));
  }
  return open;
}

Result<void> Write(const OpenState& state, std::uint64_t attempt, const KeptSave& save,
                   const CheckpointFolder& folder, const CheckpointOwner& owner) {
  const std::vector<ShardIndex> indices = Renumbered(state.shards);
  const auto goes_on = [&save] {
    save.on_block();
    return false;
  };
  for (std::size_t i = 0; i < indices.size(); ++i) {
    auto written = WriteShard(folder, attempt, i, indices[i], state.files[i].content(), goes_on);
    if (!written) return written;
  }
  CheckpointStep at = state.shards.front().at;
  at.settings = save.settings;
  return CommitShards(folder, attempt, at, owner, indices.size());
}

}  // namespace

Result<std::int64_t> SaveKept(const KeptSave& save, const CheckpointFolder& folder,
                              const CheckpointOwner& owner) {
  std::random_device random;
  const std::uint64_t attempt = static_cast<std::uint64_t>(random()) << 32 | random();
  Error why{fmt::format("{}: no state from step {} on is whole there: other nodes have parts of it",
                        save.kept, save.least),
            ExitCode::kRankFailure};
  for (const FoundState& state : InTurn(StatesIn(save.kept), save.committed)) {
    if (state.step < save.least) continue;
    const auto open = Open(save.kept, state);
    auto written = open ? Write(*open, attempt, save, folder, owner)
                        : Result<void>(tl::unexpected(open.error()));
    if (written) return state.step;
    (void)RemoveFlatFolder(folder.PartPathOf(state.step, attempt));  // the error says more
    why = written.error();
  }
  return tl::unexpected(why);
}

}  // namespace adaptive_train
