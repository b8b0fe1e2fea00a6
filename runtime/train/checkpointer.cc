// Agreement of the ranks on what is read and when something is written.
#include "runtime/train/checkpointer.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <chrono>
#include <iterator>
#include <random>
#include <utility>

#include "core/exit_code.h"
#include "runtime/checkpoint/checkpoint_parameters.h"
#include "runtime/comm/collective.h"
#include "runtime/train/joint_work.h"
#include "runtime/train/stall_watch.h"

namespace adaptive_train {
namespace {

/// Between two looks at a writer that all ranks wait for.
constexpr std::chrono::milliseconds kLook{200};
/// Numbers of samples are whole below this in a double.
constexpr double kMostSamples = 1e15;

}  // namespace

// Heads and sequence are in no parameter's shape.
std::string CheckpointIdentity(const Config& config) {
  return fmt::format("{}, model.sequence = {}", IdentityOf(DimsOf(config.model)),
                     config.model.sequence);
}

CheckpointSettings SettingsOf(const Config& config, const std::string& data) {
  const OptimizerConfig& o = config.optimizer;
  const auto words = [](const auto& value) { return fmt::format("{}", value); };
  return {{"data.train", data},
          {"train.global_batch", words(config.train.global_batch)},
          {"train.seed", words(config.train.seed)},
          {"train.steps", words(config.train.steps)},
          {"train.precision", config.train.precision},
          {"train.dropout", words(config.train.dropout)},
          {"optimizer.kind", o.kind},
          {"optimizer.lr", words(o.lr)},
          {"optimizer.betas", fmt::format("[{}, {}]", o.beta1, o.beta2)},
          {"optimizer.weight_decay", words(o.weight_decay)},
          {"optimizer.warmup_steps", words(o.warmup_steps)},
          {"optimizer.schedule", NameOf(o.schedule)},
          {"optimizer.clip", words(o.clip)}};
}

namespace {

bool ChangesOrder(const SettingChange& change) {
  return std::find(std::begin(kOrderSettings), std::end(kOrderSettings), change.name) !=
         std::end(kOrderSettings);
}

CheckpointSettings OrderOf(const CheckpointSettings& settings) {
  CheckpointSettings order;
  for (const char* name : kOrderSettings) order[name] = settings.at(name);
  return order;
}

}  // namespace

CheckpointOwner OwnerOf(const Config& config, const CheckpointSettings& settings) {
  const ModelDims dims = DimsOf(config.model);
  return {CheckpointIdentity(config), ParametersOf(ParameterLayout(dims, StageSlice::Whole(dims))),
          OrderOf(settings)};
}

namespace {

/// Samples that the run has done: earlier programs did not write it, and had one size of batches.
double SamplesOf(const CheckpointStep& at, std::int64_t global_batch) {
  if (const auto found = at.extra.find("samples"); found != at.extra.end()) return found->second;
  const auto written = at.settings.find("train.global_batch");
  if (written != at.settings.end())
    std::from_chars(written->second.data(), written->second.data() + written->second.size(),
                    global_batch);
  return static_cast<double>(at.step) * static_cast<double>(global_batch);
}

}  // namespace

Checkpointer::Checkpointer(const Config& config, const ParameterLayout& layout, ArenaShare share,
                           Group& group, Group& data, const TrainerEvents& events, int threads,
                           const std::string& text)
    : config_(config.checkpoint),
      patience_(config.checkpoint.patience_s),
      dims_(DimsOf(config.model)),
      layout_(layout),
      share_(std::move(share)),
      group_(group),
      data_(data),
      events_(events),
      threads_(threads),
      folder_(config.checkpoint.dir),
      global_batch_(config.train.global_batch),
      run_settings_(SettingsOf(config, text)),
      owner_(OwnerOf(config, run_settings_)),
      sum_([this](std::span<double> numbers) { SumOverRanks(group_, numbers); }) {}

CheckpointWriterSettings Checkpointer::Settings(bool residuals) const {
  CheckpointWriterSettings settings;
  settings.path = config_.dir;
  settings.keep = config_.keep;
  settings.rank = group_.Rank();
  settings.ranks = group_.Size();
  settings.copy_threads = threads_;
  settings.owner = owner_;
  settings.arena = {BlocksOf(layout_), share_.rule};
  settings.place = share_.place;
  settings.arena_of = data_.RankOf(0);
  settings.residuals = residuals;
  return settings;
}

/// A step of the folder, or none, from rank 0 to all: its own on rank 0, which alone adds to the
/// sum.
std::optional<std::int64_t> Checkpointer::Announce(std::optional<std::int64_t> step) {
  double sums[2] = {step ? 1.0 : 0.0, static_cast<double>(step.value_or(0))};
  SumOverRanks(group_, sums);
  if (sums[0] == 0) return std::nullopt;
  return static_cast<std::int64_t>(sums[1]);
}

/// Every rank reads its part of the checkpoint; all get the same answer.
Result<void> Checkpointer::Verify(std::int64_t step) {
  const std::int64_t rank = group_.Rank(), ranks = group_.Size();
  return DoJointly(group_, patience_, "verifying a checkpoint", [=, this](auto& done) {
    auto reader = folder_.Open(step, owner_);
    if (!reader) return Result<void>(tl::unexpected(reader.error()));
    const Result<void> expected = rank == 0 ? ExpectOrder(*reader) : Result<void>();
    if (!expected) return expected;
    reader->OnBlock([&done] { ++done; });
    return reader->Verify(rank, ranks);
  });
}

/// Fails where samples would come in another order than the checkpoint's run had them.
Result<void> Checkpointer::ExpectOrder(const CheckpointReader& reader) const {
  const CheckpointStep& at = reader.manifest().at;
  const auto& accepted = config_.accept;
  std::vector<std::string> lines, names;
  for (const SettingChange& change : ChangesOf(at.settings, run_settings_)) {
    if (!ChangesOrder(change) ||
        std::find(accepted.begin(), accepted.end(), change.name) != accepted.end())
      continue;
    lines.push_back(Describe(change));
    names.push_back("\"" + change.name + "\"");
  }
  if (lines.empty()) return {};
  return Fail(fmt::format("{}: {}: samples would come in another order; to go on all the same, set "
                          "checkpoint.accept = [{}]",
                          folder_.PathOf(at.step), fmt::join(lines, "; "), fmt::join(names, ", ")),
              ExitCode::kRankFailure);
}

/// Rank 0 looks through the folder and asks all to verify what it finds; the others are told the
/// result's step alone.
NewestCheckpoint Checkpointer::FindNewest() {
  if (group_.Rank() == 0) {
    const auto judge = [this](std::int64_t step) {
      Announce(step);
      return Verify(step);
    };
    NewestCheckpoint newest =
        OrThrow(folder_.NewestValid(judge), RankExit::kCheckpoint, "looking for checkpoints");
    Announce(std::nullopt);
    Announce(newest.step);
    return newest;
  }
  while (const auto step = Announce(std::nullopt)) (void)Verify(*step);  // rank 0 counts the result
  NewestCheckpoint newest;
  newest.step = Announce(std::nullopt);
  return newest;
}

std::optional<CheckpointStep> Checkpointer::Resume(
    const TrainingArenas& arenas, const ElementRanges& held,
    const std::function<std::span<float>()>& residuals_to_take) {
  const NewestCheckpoint newest = FindNewest();
  if (group_.Rank() == 0) TellOf(newest);
  MakeWriter(arenas, newest.refused_steps);
  if (newest.step) {
    saved_step_ = *newest.step;
    return Read(saved_step_, arenas, held, residuals_to_take);
  }
  if (config_.start == "none") return std::nullopt;
  OrThrow(DoJointly(group_, patience_, "reading checkpoint.start",
                    [this, held, arenas](auto& done) -> Result<void> {
                      auto read = ReadParameters(config_.start, dims_, layout_, held,
                                                 *arenas.memory, arenas[0], [&done] { ++done; });
                      if (!read) return tl::unexpected(read.error());
                      return {};
                    }),
          RankExit::kCheckpoint, "reading checkpoint.start");
  if (group_.Rank() == 0) events_.on_notice("begins with the parameters of " + config_.start);
  return std::nullopt;
}

void Checkpointer::MakeWriter(const TrainingArenas& arenas, std::set<std::int64_t> refused) {
  CheckpointWriterSettings settings = Settings(!arenas[kResiduals].empty());
  settings.refused = std::move(refused);
  settings.attempt = DrawAttempt();
  writer_ =
      OrThrow(CheckpointWriter::Create(settings), RankExit::kCheckpoint, "preparing checkpoints");
}

std::optional<std::int64_t> Checkpointer::NewestStep() {
  std::optional<std::int64_t> newest;
  if (group_.Rank() == 0) {
    const auto steps =
        OrThrow(folder_.Complete(), RankExit::kCheckpoint, "looking for checkpoints");
    if (!steps.empty()) newest = steps.back();
  }
  return Announce(newest);
}

void Checkpointer::GoOnAfter(std::int64_t step, const TrainingArenas& arenas) {
  if (NewestStep() == step) saved_step_ = step;
  MakeWriter(arenas, {});
}

/// Throws where there are checkpoints and none is taken: nothing is begun anew over them.
void Checkpointer::TellOf(const NewestCheckpoint& newest) {
  for (const std::string& line : newest.refused) events_.on_notice("refused: " + line);
  for (const std::string& line : newest.unfinished) events_.on_notice("unfinished: " + line);
  if (newest.step || newest.refused.empty()) return;
  throw FatalError(
      RankExit::kCheckpoint, FailureKind::kConfiguration, "resume", FatalError::kNoPeer,
      fmt::format("{}; there is no other checkpoint in {}: to begin anew, name another run folder "
                  "or checkpoint.dir",
                  newest.refused.front(), config_.dir));
}

/// Rank 0's, in two halves that a sum of doubles keeps exactly.
std::uint64_t Checkpointer::DrawAttempt() {
  double halves[2] = {};
  if (group_.Rank() == 0) {
    std::random_device random;
    for (double& half : halves) half = random();
  }
  SumOverRanks(group_, halves);
  return static_cast<std::uint64_t>(halves[0]) << 32 | static_cast<std::uint64_t>(halves[1]);
}

CheckpointStep Checkpointer::Read(std::int64_t step, const TrainingArenas& arenas,
                                  const ElementRanges& held,
                                  const std::function<std::span<float>()>& residuals_to_take) {
  constexpr const char* kReading = "reading a checkpoint";
  struct Found {
    std::int64_t residuals = 0;
    bool taken = false;
    CheckpointStep at;
  };
  const auto found = std::make_shared<Found>();
  const ReadingRank reading{BlocksOf(layout_), held, data_.Rank(), data_.Size()};
  const auto read = [this, step, arenas, reading, found, residuals_to_take](auto& done) {
    auto reader = folder_.Open(step, owner_);
    if (!reader) return Result<void>(tl::unexpected(reader.error()));
    reader->OnBlock([&done] { ++done; });
    found->residuals = reader->ResidualElements();
    found->at = reader->manifest().at;
    TrainingArenas into = arenas;
    if (found->residuals > 0 && into[kResiduals].empty()) into[kResiduals] = residuals_to_take();
    found->taken = !into[kResiduals].empty();
    return reader->Read(reading, into);
  };
  OrThrow(DoJointly(group_, patience_, kReading, read), RankExit::kCheckpoint, kReading);
  CheckpointStep at = std::move(found->at);
  if (group_.Rank() == 0 && arenas[kResiduals].empty())
    TellOfResiduals(step, found->residuals, found->taken);
  if (group_.Rank() == 0) {
    for (const SettingChange& change : ChangesOf(at.settings, run_settings_))
      events_.on_notice("changed since the checkpoint: " + Describe(change));
  }
  const double samples = SamplesOf(at, global_batch_);
  if (!(samples >= 0 && samples < kMostSamples)) {
    throw FatalError(RankExit::kCheckpoint, FailureKind::kConfiguration, kReading,
                     FatalError::kNoPeer,
                     fmt::format("{}: no run has done {} samples", folder_.PathOf(step), samples));
  }
  at.extra["samples"] = samples;
  return at;
}

/// On a rank that keeps no residuals.
void Checkpointer::TellOfResiduals(std::int64_t step, std::int64_t elements, bool taken) {
  if (elements == 0) return;
  events_.on_notice(fmt::format(
      "{} holds {} elements of compressed gradients' residuals: {}", folder_.PathOf(step), elements,
      taken ? "all go into the next update, since a single replica holds nothing back"
            : "dropped, this run does not compress"));
}

void Checkpointer::Tell(const CheckpointNews& news) {
  if (!news.warning.empty()) events_.on_notice("checkpoint: " + news.warning);
  if (!news.failure.empty()) events_.on_notice("checkpoint not saved: " + news.failure);
  if (news.saved) {
    saved_step_ = *news.saved;
    const std::chrono::duration<double> taken = RunningClock::now() - begun_;
    if (group_.Rank() == 0)
      events_.on_saved({*news.saved, writer_->PathOf(*news.saved), taken.count()});
  }
  ready_ = news.ready;
}

void Checkpointer::Follow(std::span<const double> votes) {
  CheckpointVotes sums;
  std::copy(votes.begin(), votes.end(), sums.begin());
  Tell(writer_->Follow(sums));
}

void Checkpointer::Begin(const CheckpointStep& at, const TrainingArenas& arenas) {
  asked_ = false;
  begun_ = RunningClock::now();
  CheckpointStep described = at;
  described.settings = run_settings_;
  if (events_.save_fails && events_.save_fails(at.step)) writer_->FailNext();
  const bool begun = writer_->Begin(
      described, {arenas.memory, {arenas[0], arenas[1], arenas[2], arenas[kResiduals]}});
  if (!begun)
    throw FatalError(RankExit::kCheckpoint, "saving", FatalError::kNoPeer,
                     "the writer is not free");
}

CheckpointNews Checkpointer::Exchange() {
  CheckpointVotes votes = writer_->Votes();
  sum_(votes);
  CheckpointNews news = writer_->Follow(votes);
  Tell(news);
  return news;
}

/// Gives the news of a failure, if there was one.
CheckpointNews Checkpointer::Finish() {
  CheckpointNews failed;
  StallWatch watch(patience_);
  while (!ready_) {
    writer_->Wait(kLook);
    const CheckpointNews news = Exchange();
    if (group_.Rank() == 0) events_.on_saving({static_cast<std::int64_t>(news.blocks)});
    if (!ready_ && watch.Stalled(news.blocks)) {
      throw FatalError(RankExit::kCheckpoint, "writing a checkpoint", FatalError::kNoPeer,
                       fmt::format("{} took nothing for {} s (checkpoint.patience_s)", config_.dir,
                                   patience_.count()));
    }
    if (!news.failure.empty()) failed = news;
  }
  return failed;
}

void Checkpointer::CompleteSave() {
  Exchange();
  Finish();
}

void Checkpointer::SaveNow(const CheckpointStep& at, const TrainingArenas& arenas) {
  CompleteSave();
  if (saved_step_ == at.step) return;
  Begin(at, arenas);
  ready_ = false;
  // The rank that failed ends the run, and knows why; the others have done their part.
  const CheckpointNews failed = Finish();
  if (!failed.failure.empty())
    throw FatalError(RankExit::kCheckpoint, KindOf(RankExit::kCheckpoint, failed.system_error),
                     "writing a checkpoint", FatalError::kNoPeer, failed.failure);
}

void Checkpointer::SaveNowBy(std::function<void(std::span<double>)> sum, const CheckpointStep& at,
                             const TrainingArenas& arenas) {
  sum_ = std::move(sum);
  SaveNow(at, arenas);
}

void Checkpointer::CompleteSaveBy(std::function<void(std::span<double>)> sum) {
  sum_ = std::move(sum);
  CompleteSave();
}

}  // namespace adaptive_train
