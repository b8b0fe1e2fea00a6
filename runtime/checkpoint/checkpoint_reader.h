// One complete checkpoint, opened: any range of any parameter, from whatever shards hold it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "core/result.h"
#include "runtime/checkpoint/checkpoint_files.h"
#include "runtime/checkpoint/checkpoint_format.h"

namespace adaptive_train {

/// Where the elements from `begin` on of a parameter in one arena go: as many as `to` holds.
struct CheckpointRequest {
  std::size_t arena = 0;  // one before kResiduals
  std::string name;
  std::int64_t begin = 0;
  std::span<float> to;
};

/// Who reads: rank `rank` of `ranks`, all of which hold the same layout, what of the arenas before
/// kResiduals.
struct ReadingRank {
  std::int64_t rank = 0;
  std::int64_t ranks = 1;
  ElementRanges ranges;

  /// A rank that holds all of a layout.
  static ReadingRank OfAll(const ParameterLayout& layout, std::int64_t rank = 0,
                           std::int64_t ranks = 1) {
    return {rank, ranks, {{0, layout.size()}}};
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
  /// The manifest's entry, or nullptr.
  const CheckpointParameter* Find(const std::string& name) const;

  /// Fails unless the checkpoint is of a run with these words and these parameters.
  Result<void> Expect(const std::string& identity,
                      const std::vector<CheckpointParameter>& parameters) const;
  /// Calls `on_block` after each block that is read, so that others see reading go on.
  void OnBlock(std::function<void()> on_block) { on_block_ = std::move(on_block); }
  /// Reads part `part` of `parts` nearly equal ones of the shards' blocks and checks it: all parts
  /// together are every byte.
  Result<void> Verify(std::int64_t part = 0, std::int64_t parts = 1) const;
  /// Reads what is asked for and checks the blocks it lies in. On failure the targets hold
  /// anything.
  Result<void> Read(std::span<const CheckpointRequest> requests) const;
  /// Reads the reader's ranges of the arenas of a layout whose parameters, in whole, are all in
  /// this checkpoint; elements outside of the ranges are not touched. An empty arena is left out
  /// (evaluation needs no moments). A rank's residuals are the sum of those
  /// in shards rank, rank + ranks, rank + 2 ranks and so on, added in this order in float32; zero
  /// where these hold none. So the ranks together get all of them, and as many ranks as wrote the
  /// checkpoint each get their own back, bit for bit.
  Result<void> Read(const ParameterLayout& layout, const TrainingArenas& arenas,
                    const ReadingRank& reading) const;
  /// Elements of the residuals of all shards; 0 where nothing was compressed.
  std::int64_t ResidualElements() const;

 private:
  /// Bytes of a shard that go to memory.
  struct Transfer {
    std::int64_t begin;  // in the file
    std::int64_t end;
    std::byte* to;
  };
  /// What happens to the bytes of a shard, whole floats, where they arrive.
  using Arrive = void (*)(std::byte* to, std::span<const std::byte> from);
  using RequestsByName = std::unordered_multimap<std::string_view, const CheckpointRequest*>;

  CheckpointReader() = default;
  static std::vector<Transfer> TransfersOf(const ShardIndex& index, const RequestsByName& requests);
  Result<void> OpenShards();
  Result<std::vector<CheckpointRequest>> RequestsFor(const ParameterLayout& layout,
                                                     std::size_t arena, std::span<float> values,
                                                     const ElementRanges& ranges) const;
  Result<void> ReadResiduals(const ParameterLayout& layout, std::span<float> residuals,
                             const ReadingRank& reading) const;
  std::string PathOf(std::size_t shard, const char* extension) const;
  Result<BlockReader> OpenBlocks(std::size_t shard) const;
  Result<void> Transmit(std::size_t shard, const std::vector<Transfer>& transfers,
                        Arrive arrive) const;

  std::string folder_;
  CheckpointManifest manifest_;
  std::vector<ShardIndex> indices_;
  std::function<void()> on_block_ = [] {};
};

}  // namespace adaptive_train
