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

namespace adaptive_train {

/// Who reads: the blocks of a rank's arenas, and those elements of them that it wants of the arenas
/// before kResiduals. It is rank `rank` of `ranks` that hold the same blocks.
struct ReadingRank {
  std::vector<ParameterBlock> blocks;
  ElementRanges ranges;
  std::int64_t rank = 0;
  std::int64_t ranks = 1;

  /// A rank that wants all of a layout.
  static ReadingRank OfAll(const ParameterLayout& layout, std::int64_t rank = 0,
                           std::int64_t ranks = 1) {
    return {BlocksOf(layout), {{0, layout.size()}}, rank, ranks};
  }
};

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
  /// into the whole arena: the sum in float32 of those of shards rank, rank + ranks, rank + 2 ranks
  /// and so on, in this order and counted among the shards of the same arena; zero where these hold
  /// none. So the ranks together get all of them, and as many ranks as wrote the checkpoint each
  /// get their own back, bit for bit.
  Result<void> Read(const ReadingRank& reading, const TrainingArenas& arenas) const;
  /// Elements of the residuals of all shards; 0 where nothing was compressed.
  std::int64_t ResidualElements() const;

 private:
  /// Bytes of a shard that go to memory.
  struct Transfer {
    std::int64_t begin;  // in the file
    std::int64_t end;
    float* to;
  };
  /// What happens to the bytes of a shard, whole floats, where they arrive in an arena's memory.
  using Arrive = void (*)(kernels::DeviceMemory& memory, float* to,
                          std::span<const std::byte> from);

  CheckpointReader() = default;
  Result<void> OpenShards();
  static void AppendTransfers(std::vector<Transfer>& transfers, std::int64_t offset,
                              const std::vector<ArenaRun>& runs,
                              const std::vector<ArenaRun>& wanted, std::span<float> arena);
  std::vector<ArenaRun> RunsIn(const ModelPlaces& places, std::size_t shard,
                               std::size_t arena) const;
  std::vector<Transfer> StateTransfers(const ModelPlaces& places, std::size_t shard,
                                       const std::vector<ArenaRun>& wanted,
                                       const TrainingArenas& arenas) const;
  Result<void> ReadResiduals(const ModelPlaces& places, const std::vector<ArenaRun>& wanted,
                             const ReadingRank& reading, const TrainingArenas& arenas) const;
  std::string PathOf(std::size_t shard, const char* extension) const;
  Result<BlockReader> OpenBlocks(std::size_t shard) const;
  Result<void> Transmit(std::size_t shard, const std::vector<Transfer>& transfers,
                        kernels::DeviceMemory& memory, Arrive arrive) const;

  std::string folder_;
  CheckpointManifest manifest_;
  std::vector<ShardIndex> indices_;
  std::function<void()> on_block_ = [] {};
};

}  // namespace adaptive_train
