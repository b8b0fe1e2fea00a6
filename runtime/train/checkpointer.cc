// Agreement of the ranks on what is read and when something is written.
#include "runtime/train/checkpointer.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <random>
#include <utility>

#include "runtime/checkpoint/checkpoint_parameters.h"
#include "runtime/train/collective.h"

namespace adaptive_train {
namespace {

/// Between two looks at a writer that all ranks wait for.
constexpr std::chrono::milliseconds kLook{200};
/// For what is under way to reach the disk: less than a launcher waits for ranks that save.
constexpr std::chrono::minutes kFinishDeadline{9};

}  // namespace

// Heads are in no parameter's shape, and the others decide which samples the next step takes.
std::string CheckpointIdentity(const Config& config) {
  return fmt::format("{}, model.sequence = {}, train.global_batch = {}, train.seed = {}",
                     IdentityOf(DimsOf(config.model)), config.model.sequence,
                     config.train.global_batch, config.train.seed);
}

Checkpointer::Checkpointer(const Config& config, const ParameterLayout& layout, ElementRanges owned,
                           Communicator& communicator, const TrainerEvents& events, int threads)
    : config_(config.checkpoint),
      model_(IdentityOf(DimsOf(config.model))),
      layout_(layout),
      owned_(std::move(owned)),
      communicator_(communicator),
      events_(events),
      threads_(threads),
      folder_(config.checkpoint.dir),
      owner_{CheckpointIdentity(config), ParametersOf(layout)} {}

CheckpointWriterSettings Checkpointer::Settings(bool residuals) const {
  CheckpointWriterSettings settings;
  settings.path = config_.dir;
  settings.keep = config_.keep;
  settings.rank = communicator_.Rank();
  settings.ranks = communicator_.Size();
  settings.copy_threads = threads_;
  settings.owner = owner_;
  settings.owned.fill(owned_);
  settings.owned[kResiduals] = residuals ? ElementRanges{{0, layout_.size()}} : ElementRanges{};
  return settings;
}

std::optional<CheckpointStep> Checkpointer::Resume(const TrainingArenas& arenas,
                                                   const ElementRanges& held) {
  CheckpointWriterSettings settings = Settings(!arenas[kResiduals].empty());
  // Rank 0 decides, the others add nothing to the sum: whether there is a checkpoint, its step, the
  // attempt in two halves.
  double decided[4] = {};
  if (settings.rank == 0) {
    const NewestCheckpoint newest =
        OrThrow(folder_.NewestValid(owner_), RankExit::kCheckpoint, "looking for checkpoints");
    for (const std::string& line : newest.refused) events_.on_notice("refused: " + line);
    for (const std::string& line : newest.unfinished) events_.on_notice("unfinished: " + line);
    if (!newest.step && !newest.refused.empty()) {
      throw FatalError(
          RankExit::kCheckpoint, "resume", FatalError::kNoPeer,
          fmt::format(
              "{}; there is no other checkpoint in {}: to begin anew, name another run folder or "
              "checkpoint.dir",
              newest.refused.front(), config_.dir));
    }
    settings.refused = newest.refused_steps;
    std::random_device random;
    decided[0] = newest.step ? 1 : 0;
    decided[1] = static_cast<double>(newest.step.value_or(0));
    decided[2] = random();
    decided[3] = random();
  }
  SumOverRanks(communicator_, decided);
  settings.attempt =
      static_cast<std::uint64_t>(decided[2]) << 32 | static_cast<std::uint64_t>(decided[3]);
  writer_ = OrThrow(CheckpointWriter::Create(settings, layout_), RankExit::kCheckpoint,
                    "preparing checkpoints");
  if (decided[0] == 0) {
    if (config_.start == "none") return std::nullopt;
    OrThrow(ReadParameters(config_.start, model_, layout_, held, arenas[0]), RankExit::kCheckpoint,
            "reading checkpoint.start");
    if (settings.rank == 0) events_.on_notice("begins with the parameters of " + config_.start);
    return std::nullopt;
  }
  saved_step_ = static_cast<std::int64_t>(decided[1]);
  return Read(saved_step_, arenas, held);
}

CheckpointStep Checkpointer::Read(std::int64_t step, const TrainingArenas& arenas,
                                  const ElementRanges& held) {
  constexpr const char* kReading = "reading a checkpoint";
  const auto reader = OrThrow(folder_.Open(step, owner_), RankExit::kCheckpoint, kReading);
  const std::int64_t residuals = reader.ResidualElements();
  if (residuals > 0 && arenas[kResiduals].empty() && communicator_.Rank() == 0) {
    events_.on_notice(
        fmt::format("{} holds {} elements of compressed gradients' residuals: dropped, this run "
                    "does not compress",
                    folder_.PathOf(step), residuals));
  }
  OrThrow(reader.Read(layout_, arenas, {communicator_.Rank(), communicator_.Size(), held}),
          RankExit::kCheckpoint, kReading);
  return reader.manifest().at;
}

void Checkpointer::Tell(const CheckpointNews& news) {
  if (!news.warning.empty()) events_.on_notice("checkpoint: " + news.warning);
  if (!news.failure.empty()) events_.on_notice("checkpoint not saved: " + news.failure);
  if (news.saved) {
    saved_step_ = *news.saved;
    const std::chrono::duration<double> taken = std::chrono::steady_clock::now() - begun_;
    if (communicator_.Rank() == 0)
      events_.on_saved({*news.saved, writer_->PathOf(*news.saved), taken.count()});
  }
  ready_ = news.ready;
}

void Checkpointer::Follow(std::span<const double> votes) {
  CheckpointVotes sums;
  std::copy(votes.begin(), votes.end(), sums.begin());
  Tell(writer_->Follow(sums));
}

void Checkpointer::BeginIfWanted(const CheckpointStep& at, const TrainingArenas& arenas) {
  if (!asked_ || !ready_) return;
  asked_ = false;
  begun_ = std::chrono::steady_clock::now();
  const bool begun = writer_->Begin(at, {arenas[0], arenas[1], arenas[2], arenas[kResiduals]});
  if (!begun)
    throw FatalError(RankExit::kCheckpoint, "saving", FatalError::kNoPeer,
                     "the writer is not free");
}

CheckpointNews Checkpointer::Exchange() {
  CheckpointVotes votes = writer_->Votes();
  SumOverRanks(communicator_, votes);
  CheckpointNews news = writer_->Follow(votes);
  Tell(news);
  return news;
}

std::string Checkpointer::Finish() {
  std::string failure;
  const auto deadline = std::chrono::steady_clock::now() + kFinishDeadline;
  while (!ready_) {
    if (std::chrono::steady_clock::now() > deadline) {
      throw FatalError(RankExit::kCheckpoint, "writing a checkpoint", FatalError::kNoPeer,
                       fmt::format("{} did not take it within {} minutes", config_.dir,
                                   kFinishDeadline.count()));
    }
    writer_->Wait(kLook);
    const CheckpointNews news = Exchange();
    if (!news.failure.empty()) failure = news.failure;
  }
  return failure;
}

void Checkpointer::SaveNow(const CheckpointStep& at, const TrainingArenas& arenas) {
  Exchange();
  Finish();
  if (saved_step_ == at.step) return;
  Ask();
  BeginIfWanted(at, arenas);
  ready_ = false;
  // The rank that failed ends the run, and knows why; the others have done their part.
  const std::string failure = Finish();
  if (!failure.empty())
    throw FatalError(RankExit::kCheckpoint, "writing a checkpoint", FatalError::kNoPeer, failure);
}

}  // namespace adaptive_train
