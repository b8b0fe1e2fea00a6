// Checkpoints written while training goes on: a copy of the state, a thread that writes it, and how
// ranks agree that all of it is there.
//
// Each rank writes its shard; when all have, rank 0 makes a checkpoint of them. Ranks learn of each
// other through three numbers that they add to a sum they make each step anyway:
//
//   sums = AllReduce(..., writer.Votes());
//   news = writer.Follow(sums);       the same on all ranks but for the messages
//   if (news.ready && due) writer.Begin(at, arenas);
//
// and, where the state must be on disk before going on:
//
//   do {
//     writer.Wait(deadline);
//     news = writer.Follow(AllReduce(writer.Votes()));
//   } while (!news.ready);
#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <thread>

#include "core/result.h"
#include "runtime/checkpoint/checkpoint_folder.h"
#include "runtime/checkpoint/checkpoint_index.h"

namespace adaptive_train {

struct CheckpointWriterSettings {
  std::string path;
  std::int64_t keep = 1;  // complete checkpoints that stay, 1 or more
  std::int64_t rank = 0;
  std::int64_t ranks = 1;
  std::uint64_t attempt = 0;  // the same on all ranks, another one in every run: rank 0 draws it
  int copy_threads = 1;       // of the snapshot
  CheckpointOwner owner;
  /// What this rank's arenas hold, the same on all ranks that share out writing it, and its place
  /// in the rule.
  CheckpointArena arena;
  std::int64_t place = 0;
  std::int64_t arena_of = 0;  // the lowest of these ranks, which describes the arena for all
  bool residuals = false;     // whether there are any; each rank writes all of its own
  /// Steps that NewestValid refused: neither removed nor counted as kept. Rank 0's are used.
  std::set<std::int64_t> refused;
};

/// To be summed over ranks, element by element: shards on disk, failures, ranks at work, blocks
/// written since the run began.
using CheckpointVotes = std::array<double, 4>;

struct CheckpointNews {
  std::optional<std::int64_t> saved;   // this step's checkpoint is complete
  std::optional<std::int64_t> failed;  // this step's was given up; those before are untouched
  bool ready = false;                  // Begin may be called
  double blocks = 0;                   // written by all ranks so far; stands still with them
  std::string failure;                 // one line, on each rank that failed; the others' is empty
  int system_error = 0;                // the errno behind `failure`; 0: none
  std::string warning;                 // one line about what could not be removed; mostly empty
};

/// Threads: all members from one thread; a thread of its own, of the lowest priority, does
/// everything that touches the file system.
class CheckpointWriter {
 public:
  /// Allocates the snapshot (4 bytes per element written of each arena) and makes its pages. Rank 0
  /// begins with removing what killed writers left. Fails without the memory, and where the arena
  /// is not of the owner's model.
  static Result<std::unique_ptr<CheckpointWriter>> Create(const CheckpointWriterSettings& settings);
  /// Gives up what is not complete. Waits for a file system that does not answer for 10 s, then
  /// leaves the thread to itself.
  ~CheckpointWriter();
  CheckpointWriter(const CheckpointWriter&) = delete;
  CheckpointWriter& operator=(const CheckpointWriter&) = delete;

  /// Bytes of the snapshot.
  std::int64_t snapshot_bytes() const;
  /// The folder of a step's checkpoint.
  std::string PathOf(std::int64_t step) const;

  /// Copies this rank's part of the arenas, and has it written in the background; residuals that
  /// are all zero are left out. False, with nothing done, while a checkpoint is under way: call
  /// where `ready` was true.
  [[nodiscard]] bool Begin(const CheckpointStep& at, const ConstTrainingArenas& arenas);
  /// Lets the next shard fail to be written, as a person has asked for (run --inject).
  void FailNext();
  /// Where this rank is. Never blocks.
  CheckpointVotes Votes() const;
  /// Takes the sum of all ranks' votes, once per sum, and does what they say. Never blocks.
  CheckpointNews Follow(const CheckpointVotes& sums);
  /// Waits until the thread has nothing to do; false if it still has at the deadline.
  bool Wait(std::chrono::milliseconds deadline);

 private:
  struct Work;

  explicit CheckpointWriter(std::shared_ptr<Work> work);

  std::shared_ptr<Work> work_;  // shared with the thread, which may outlive this object
  std::optional<std::int64_t> pending_;
  std::thread thread_;
};

}  // namespace adaptive_train
