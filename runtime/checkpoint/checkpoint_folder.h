// A run's folder of checkpoints: which there are, which is the newest that holds, and what may go.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "core/result.h"
#include "runtime/checkpoint/checkpoint_reader.h"

namespace adaptive_train {

/// Which run's checkpoints are ours.
struct CheckpointOwner {
  std::string identity;                         // see CheckpointStep
  std::vector<CheckpointParameter> parameters;  // of the whole model
  /// What sets this run's samples apart from those of another run of the same model.
  CheckpointSettings order = {};
};

/// What a folder offers for going on.
struct NewestCheckpoint {
  std::optional<std::int64_t> step;     // taken
  std::vector<std::string> refused;     // newer complete ones and what is wrong with each, one line
  std::vector<std::string> unfinished;  // newer ones without DONE, one line each: a writer stopped
  std::set<std::int64_t> refused_steps;
};

/// One writing run at a time, any number of readers. Nothing is kept open. Everything blocks.
class CheckpointFolder {
 public:
  explicit CheckpointFolder(std::string path) : path_(std::move(path)) {}

  const std::string& path() const { return path_; }
  /// DIR/step-00000120.
  std::string PathOf(std::int64_t step) const;
  /// Steps of the folders with DONE, ascending; nothing in them has been looked at.
  Result<std::vector<std::int64_t>> Complete() const;

  /// Says of the checkpoint of a step whether it is to be taken; otherwise, in one line, why not.
  using Judge = std::function<Result<void>(std::int64_t step)>;
  /// The newest complete checkpoint that the judge takes; those that are newer and refused, by name.
  /// Reads none of them itself, asks from the newest on, deletes nothing. Fails only where the
  /// folder cannot be read.
  Result<NewestCheckpoint> NewestValid(const Judge& judge) const;
  /// Opens the checkpoint of a step. Refuses one that is not the owner's, and what is wrong with all
  /// files but the shards' content, see CheckpointReader::Verify.
  Result<CheckpointReader> Open(std::int64_t step, const CheckpointOwner& owner) const;

  /// Removes the owner's complete checkpoints before `newest` but for the newest keep - 1 of them.
  /// Steps in `spared` are neither removed nor counted; nor are links, other runs' checkpoints and
  /// what cannot be read.
  Result<void> Prune(std::int64_t newest, std::int64_t keep, const CheckpointOwner& owner,
                     const std::set<std::int64_t>& spared) const;
  /// Removes what writers that were killed left: unfinished folders of attempts other than this,
  /// and checkpoints whose removal was cut short.
  Result<void> RemoveLeftovers(std::uint64_t attempt) const;

  /// DIR/step-00000120.part-<attempt>: where a checkpoint grows before it has its name.
  std::string PartPathOf(std::int64_t step, std::uint64_t attempt) const;

 private:
  Result<void> Remove(std::int64_t step) const;

  std::string path_;
};

}  // namespace adaptive_train
