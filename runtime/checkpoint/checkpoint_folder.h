// Checkpoints on disk: written so that a reader finds a whole one or the one before.
//
// DIR/step-00000120/ holds
//   state.bin      parameters, first moments, second moments: three arenas of float32,
//   little-endian manifest.json  format_version, step, the named ranges of an arena, bytes and XXH3
//   hash of state.bin DONE           written last; a folder without it is not a checkpoint
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "core/result.h"
#include "runtime/model/parameter_layout.h"

namespace adaptive_train {

/// Host arenas of layout.size() elements each.
struct TrainingState {
  std::int64_t step = 0;     // optimizer steps done
  std::int64_t updates = 0;  // of those, steps that changed the parameters: AdamW's t
  std::string identity;      // what must be the same to go on, in words; compared as it is
  std::span<float> parameters;
  std::span<float> first_moments;
  std::span<float> second_moments;
};

/// One folder of checkpoints. One writer at a time, any number of readers. Everything blocks.
class CheckpointFolder {
 public:
  /// Keeps the newest `keep` checkpoints.
  CheckpointFolder(std::string path, std::int64_t keep) : path_(std::move(path)), keep_(keep) {}

  /// Writes a checkpoint and gives its path; then removes those beyond `keep` and half-written
  /// ones. On failure (full disk) what was there before is untouched.
  Result<std::string> Write(const ParameterLayout& layout, const TrainingState& state) const;
  /// The newest complete checkpoint's step; none if there is none.
  std::optional<std::int64_t> Newest() const;
  /// Reads the checkpoint of a step into the arenas and sets state.step. Refuses another model's, a
  /// newer format's, or one whose hash does not fit.
  Result<void> Read(const ParameterLayout& layout, std::int64_t step, TrainingState& state) const;

 private:
  std::string FolderOf(std::int64_t step) const;
  std::vector<std::int64_t> Complete() const;
  Result<void> WriteInto(const std::string& folder, const ParameterLayout& layout,
                         const TrainingState& state) const;
  void Prune() const;

  std::string path_;
  std::int64_t keep_;
};

}  // namespace adaptive_train
