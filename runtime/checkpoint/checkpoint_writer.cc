#include "runtime/checkpoint/checkpoint_writer.h"

#include <atomic>
#include <cassert>
#include <condition_variable>
#include <exception>
#include <mutex>
#include <utility>

#include "runtime/checkpoint/checkpoint_files.h"
#include "runtime/checkpoint/checkpoint_shard.h"
#include "runtime/checkpoint/checkpoint_snapshot.h"
#include "runtime/checkpoint/checkpoint_thread.h"

namespace adaptive_train {
namespace {

constexpr std::chrono::seconds kFarewell{10};

enum class Phase {
  kIdle,
  kWriting,     // the thread writes the shard
  kWritten,     // the shard is on disk, others' may not be
  kCommitting,  // rank 0: the thread makes a checkpoint of the shards
  kFailed,      // until all ranks know
  kGivingUp,    // the thread removes the shard
};

bool IsWork(Phase phase) {
  return phase == Phase::kWriting || phase == Phase::kCommitting || phase == Phase::kGivingUp;
}

}  // namespace

/// What the writer and its thread share. The thread owns snapshot and `at` while IsWork(phase), the
/// writer otherwise.
struct CheckpointWriter::Work {
  Work(const CheckpointWriterSettings& chosen, CheckpointSnapshot memory, ShardIndex described)
      : settings(chosen),
        folder(chosen.path),
        snapshot(std::move(memory)),
        index(std::move(described)) {}

  void Run();
  Result<void> Do(Phase task);
  void Tidy(const Result<void>& done);
  std::size_t Number() const { return static_cast<std::size_t>(settings.rank); }

  const CheckpointWriterSettings settings;
  const CheckpointFolder folder;
  CheckpointSnapshot snapshot;
  ShardIndex index;  // with all residuals
  CheckpointStep at;
  std::atomic<bool> give_up = false;     // the shard under way is not wanted any more
  std::atomic<bool> fail_next = false;   // the next shard is to fail
  std::atomic<std::int64_t> blocks = 0;  // written so far

  std::mutex mutex;
  std::condition_variable changed;
  Phase phase = Phase::kIdle;  // guarded by mutex, as all below
  bool commit_failed = false;
  bool stopping = false;
  bool ended = false;
  std::string failure;
  int system_error = 0;  // behind `failure`
  std::string warning;
};

void CheckpointWriter::Work::Run() {
  GiveWay();
  if (settings.rank == 0) Tidy(folder.RemoveLeftovers(settings.attempt));
  std::unique_lock lock(mutex);
  for (;;) {
    changed.wait(lock, [this] { return stopping || IsWork(phase); });
    if (stopping) break;
    const Phase task = phase;
    lock.unlock();
    const Result<void> done = Do(task);
    lock.lock();
    if (task == Phase::kWriting && give_up) {
      phase = Phase::kGivingUp;
      continue;
    }
    commit_failed = task == Phase::kCommitting && !done;
    if (!done) failure = done.error().message, system_error = done.error().system_error;
    const Phase next = task == Phase::kWriting ? Phase::kWritten : Phase::kIdle;
    phase = done ? next : Phase::kFailed;
    changed.notify_all();
  }
  ended = true;
  changed.notify_all();
}

Result<void> CheckpointWriter::Work::Do(Phase task) {
  try {
    if (task == Phase::kWriting && fail_next.exchange(false))
      return FailAt(folder.PathOf(at.step), "fails as asked for (run --inject)");
    if (task == Phase::kWriting) {
      ShardIndex taken = index;
      if (!snapshot.has_residuals()) taken.residuals = 0;
      return WriteShard(folder, settings.attempt, Number(), std::move(taken), snapshot.bytes(),
                        [this] {
                          ++blocks;
                          return give_up.load();
                        });
    }
    if (task == Phase::kCommitting) {
      auto done = CommitShards(folder, settings.attempt, at, settings.owner,
                               static_cast<std::size_t>(settings.ranks));
      if (done) Tidy(folder.Prune(at.step, settings.keep, settings.owner, settings.refused));
      return done;
    }
    if (commit_failed) {
      Tidy(RemoveFlatFolder(folder.PartPathOf(at.step, settings.attempt)));
    } else {
      RemoveShard(folder, settings.attempt, at.step, Number());
    }
    return {};
  } catch (const std::exception& error) {
    return FailAt(folder.PathOf(at.step), error.what());
  }
}

void CheckpointWriter::Work::Tidy(const Result<void>& done) {
  if (done) return;
  const std::lock_guard lock(mutex);
  warning = done.error().message;
}

Result<std::unique_ptr<CheckpointWriter>> CheckpointWriter::Create(
    const CheckpointWriterSettings& settings) {
  const CheckpointArena& arena = settings.arena;
  const auto map = ArenaMap::Of(ModelPlaces(settings.owner.parameters), arena.blocks);
  if (!map) return FailIn("checkpoints", map.error());
  assert(arena.rule.size() == map->size());
  const ElementRanges state = map->WithoutCopies(arena.rule.OwnedBy(settings.place));
  const ElementRanges all = map->WithoutCopies({{0, map->size()}});
  auto snapshot = CheckpointSnapshot::Allocate(
      {state, state, state, settings.residuals ? all : ElementRanges{}});
  if (!snapshot) return tl::unexpected(snapshot.error());
  ShardIndex index;
  index.arena_of = settings.arena_of;
  if (settings.arena_of == settings.rank) index.arena = arena;
  index.place = settings.place;
  for (const ElementRange& range : state) index.elements += range.size();
  for (const ElementRange& range : all) index.residuals += range.size();
  auto work = std::make_shared<Work>(settings, std::move(*snapshot), std::move(index));
  return std::unique_ptr<CheckpointWriter>(new CheckpointWriter(std::move(work)));
}

CheckpointWriter::CheckpointWriter(std::shared_ptr<Work> work) : work_(std::move(work)) {
  const SignalsLeftToOthers signals;
  thread_ = std::thread([shared = work_] { shared->Run(); });
}

CheckpointWriter::~CheckpointWriter() {
  std::unique_lock lock(work_->mutex);
  work_->stopping = true;
  work_->give_up = true;
  work_->changed.notify_all();
  const bool ended = work_->changed.wait_for(lock, kFarewell, [this] { return work_->ended; });
  lock.unlock();
  if (ended) {
    thread_.join();
  } else {
    thread_.detach();
  }
}

std::int64_t CheckpointWriter::snapshot_bytes() const {
  return static_cast<std::int64_t>(work_->snapshot.capacity());
}

std::string CheckpointWriter::PathOf(std::int64_t step) const { return work_->folder.PathOf(step); }

bool CheckpointWriter::Begin(const CheckpointStep& at, const ConstTrainingArenas& arenas) {
  {
    const std::lock_guard lock(work_->mutex);
    if (work_->phase != Phase::kIdle || pending_) return false;
  }
  // Idle: the thread touches none of this until the phase changes.
  work_->at = at;
  work_->index.step = at.step;
  work_->give_up = false;
  work_->snapshot.Take(arenas, work_->settings.copy_threads);
  pending_ = at.step;
  const std::lock_guard lock(work_->mutex);
  work_->phase = Phase::kWriting;
  work_->changed.notify_all();
  return true;
}

void CheckpointWriter::FailNext() { work_->fail_next = true; }

CheckpointVotes CheckpointWriter::Votes() const {
  const std::lock_guard lock(work_->mutex);
  const Phase phase = work_->phase;
  return {phase == Phase::kWritten ? 1.0 : 0.0, phase == Phase::kFailed ? 1.0 : 0.0,
          phase == Phase::kIdle ? 0.0 : 1.0, static_cast<double>(work_->blocks)};
}

CheckpointNews CheckpointWriter::Follow(const CheckpointVotes& sums) {
  const auto [written, failures, at_work, blocks] = sums;
  CheckpointNews news;
  news.blocks = blocks;
  const std::lock_guard lock(work_->mutex);
  Phase& phase = work_->phase;
  news.warning = std::exchange(work_->warning, "");
  if (failures > 0) {
    news.failed = std::exchange(pending_, std::nullopt);
    news.failure = std::exchange(work_->failure, "");
    news.system_error = std::exchange(work_->system_error, 0);
    if (phase == Phase::kWriting) work_->give_up = true;
    if (phase == Phase::kWritten || phase == Phase::kFailed) phase = Phase::kGivingUp;
  } else if (written == static_cast<double>(work_->settings.ranks)) {
    assert(phase == Phase::kWritten);
    phase = work_->settings.rank == 0 ? Phase::kCommitting : Phase::kIdle;
  } else if (at_work == 0) {
    news.saved = std::exchange(pending_, std::nullopt);
    news.ready = true;
  }
  work_->changed.notify_all();
  return news;
}

bool CheckpointWriter::Wait(std::chrono::milliseconds deadline) {
  std::unique_lock lock(work_->mutex);
  return work_->changed.wait_for(lock, deadline, [this] { return !IsWork(work_->phase); });
}

}  // namespace adaptive_train
