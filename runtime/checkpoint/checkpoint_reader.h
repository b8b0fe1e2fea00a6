// One complete checkpoint, opened: any block of any parameter, from whatever shards hold it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "core/result.h"
#include "runtime/checkpoint/checkpoint_files.h"
#include "runtime/checkpoint/checkpoint_index.h"
#include "runtime/checkpoint/state_transfers.h"

namespace adaptive_train {

/// Everything blocks. Errors are one line that begins with the file they are about. const members
/// may be called from several threads.
class CheckpointReader {
 public:
  /// Reads a checkpoint's folder: DONE, manifest and shard indices by their hashes, sizes of the
  /// shards, and that they cover every parameter exactly once. Does not read the shards yet.
  static Result<CheckpointReader> Open(const std::string& folder);

  const CheckpointManifest& manifest() const { return manifest_; }

  /// Fails unless the checkpoint is of a run with these words and these parameters.
  Result<void> Expect(const std::string& identity,
                      const std::vector<CheckpointParameter>& parameters) const;
  /// Calls `on_block` after each block that is read, so that others see reading go on.
  void OnBlock(std::function<void()> on_block) { on_block_ = std::move(on_block); }
  /// Reads part `part` of `parts` nearly equal ones of the shards' blocks and checks it: all parts
  /// together are every byte.
  Result<void> Verify(std::int64_t part = 0, std::int64_t parts = 1) const;
  /// Reads the reader's ranges of the arenas, from whatever blocks they are in, and checks the
  /// blocks of the files; elements outside of the ranges are not touched. An empty arena is left
  /// out (evaluation needs no moments). On failure the arenas hold anything. Residuals are read
  /// into the whole arena, see StateTransfers::Of; zero where the shards hold none.
  Result<void> Read(const ReadingRank& reading, const TrainingArenas& arenas) const;
  /// Elements of the residuals of all shards; 0 where nothing was compressed.
  std::int64_t ResidualElements() const;

 private:
  CheckpointReader() = default;
  Result<void> OpenShards();
  std::string PathOf(std::size_t shard, const char* extension) const;
  Result<BlockReader> OpenBlocks(std::size_t shard) const;

  std::string folder_;
  CheckpointManifest manifest_;
  std::vector<ShardIndex> indices_;
  std::function<void()> on_block_ = [] {};
};

}  // namespace adaptive_train
