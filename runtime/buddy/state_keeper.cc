#include "runtime/buddy/state_keeper.h"

#include <fmt/format.h>
#include <time.h>

#include <algorithm>
#include <chrono>
#include <utility>

#include "runtime/checkpoint/checkpoint_files.h"
#include "runtime/comm/collective.h"
#include "runtime/comm/communicator.h"

namespace adaptive_train {
namespace {

using Clock = std::chrono::steady_clock;

/// A run that is left alone for so long has ended: one that goes on begins within seconds.
constexpr std::chrono::hours kStaleAge{1};
constexpr double kMegabyte = 1e6;
/// Kinds of parts that a rank may keep.
constexpr std::size_t kKinds = 2;

double ProcessorSeconds() {
  timespec now{};
  ::clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) * 1e-9;
}

std::size_t SizeAt(int rank, KeptKind kind) {
  return kKinds * static_cast<std::size_t>(rank) + static_cast<std::size_t>(kind);
}

std::vector<std::uint64_t> HashesOf(std::span<const std::byte> bytes) {
  std::vector<std::uint64_t> hashes;
  while (!bytes.empty()) {
    const auto block = bytes.first(std::min<std::size_t>(bytes.size(), kCheckpointBlockBytes));
    hashes.push_back(HashOf(block));
    bytes = bytes.subspan(block.size());
  }
  return hashes;
}

int ArenasOf(const Plan& plan) { return plan.Pipeline() * plan.tensor; }

}  // namespace

StateKeeper::StateKeeper(KeptRun run, const Plan& plan, KeptArena arena, int threads, Group& world,
                         OnNotice on_notice)
    : run_(std::move(run)),
      plan_(plan),
      arena_(std::move(arena)),
      threads_(threads),
      world_(world),
      on_notice_(std::move(on_notice)),
      on_(plan.orders.keeping.on && !run_.key.empty()),
      interval_(plan.orders.keeping.every) {
  if (!on_) return;
  parts_ = KeptPartsOf(plan);
  // What cannot be removed is another run's, and in nobody's way.
  (void)RemoveStaleKeptFolders(kKeptRoot, kStaleAge);
  const std::string& node = plan.ranks[static_cast<std::size_t>(world.Rank())].device.node;
  auto folder = KeptFolder::Hold(kKeptRoot, run_.FolderName(node));
  if (folder) {
    folder_.emplace(std::move(*folder));
  } else {
    trouble_ = folder.error().message;
  }
}

std::optional<CheckpointStep> StateKeeper::Restore(
    std::int64_t least, const ReadingRank& reading, const TrainingArenas& arenas,
    const std::function<std::span<float>()>& residuals_to_take) {
  return StateRestorer(run_, plan_, folder_ ? folder_->path() : "", arena_.parameters, world_,
                       on_notice_)
      .Restore(least, reading, arenas, residuals_to_take);
}

void StateKeeper::AddOutgoing(KeptKind kind, const KeptPart& part, ArenaShare share,
                              bool residuals) {
  const ModelPlaces places(arena_.parameters);
  const ArenaMap map = OrThrow(ArenaMap::Of(places, arena_.blocks), RankExit::kCheckpoint,
                               "keeping the state in memory");
  const bool state = kind == KeptKind::kState;
  const ElementRanges ranges =
      map.WithoutCopies(state ? share.rule.OwnedBy(share.place) : ElementRanges{{0, map.size()}});
  KeptShard shard;
  shard.entry = {.attempt = run_.attempt,
                 .kind = kind,
                 .rank = world_.Rank(),
                 .ranks = world_.Size(),
                 .arenas = ArenasOf(plan_),
                 .residuals = residuals,
                 .part = part};
  shard.index.arena_of = part.arena_of;
  shard.index.arena = CheckpointArena{arena_.blocks, std::move(share.rule)};
  shard.index.place = share.place;
  for (const ElementRange& range : ranges)
    (state ? shard.index.elements : shard.index.residuals) += range.size();
  const ElementRanges none;
  outgoing_.push_back({std::move(shard),
                       ArenaCopy(state ? OwnedRanges{ranges, ranges, ranges, none}
                                       : OwnedRanges{none, none, none, ranges}),
                       part.buddy});
}

/// The parts that this rank makes and those that it is sent.
void StateKeeper::Describe(bool residuals) {
  const auto own = static_cast<std::size_t>(world_.Rank());
  const auto share_of = [&](const KeptPart& part) {
    return ArenaShare{BucketRule::Whole(arena_.elements, part.places), part.place};
  };
  const KeptParts& mine = parts_[own];
  AddOutgoing(KeptKind::kState, mine.state, arena_.share ? *arena_.share : share_of(mine.state),
              residuals);
  if (residuals)
    AddOutgoing(KeptKind::kOwnResiduals, mine.residuals, share_of(mine.residuals), residuals);
  for (std::size_t rank = 0; rank < parts_.size(); ++rank) {
    const auto add = [&](KeptKind kind, int buddy) {
      if (buddy != world_.Rank()) return;
      KeptEntry entry{.attempt = run_.attempt, .kind = kind, .rank = static_cast<int>(rank)};
      incoming_.push_back({static_cast<int>(rank), entry});
    };
    add(KeptKind::kState, parts_[rank].state.buddy);
    if (residuals) add(KeptKind::kOwnResiduals, parts_[rank].residuals.buddy);
  }
}

/// `sizes`: header and content of the parts of all ranks, of which this rank fills in its own.
Result<void> StateKeeper::MakeOwnSlots(int slot, const CheckpointStep& at,
                                       std::vector<double>& sizes) {
  for (Outgoing& part : outgoing_) {
    KeptShard described = part.shard;
    described.at = at;
    described.index.block_hashes.resize((part.copy.bytes() + kCheckpointBlockBytes - 1) /
                                        kCheckpointBlockBytes);
    auto text = KeptText(described);
    if (!text) return tl::unexpected(text.error());
    if (slot == 0)
      part.shard.entry.header_bytes = static_cast<std::int64_t>(KeptHeaderBytes(text->size()));
    const auto header = static_cast<std::size_t>(part.shard.entry.header_bytes);
    const std::size_t place = SizeAt(world_.Rank(), part.shard.entry.kind);
    sizes[2 * place] = static_cast<double>(header);
    sizes[2 * place + 1] = static_cast<double>(part.copy.bytes());
    if (!folder_) return Fail(trouble_, ExitCode::kRankFailure);
    part.shard.entry.slot = slot;
    auto made = KeptSlot::Make(folder_->path() + "/" + part.shard.entry.FileName(), header,
                               part.copy.bytes());
    if (!made) return tl::unexpected(made.error());
    part.slots.push_back(std::move(*made));
  }
  return {};
}

Result<void> StateKeeper::MakeBuddySlots(int slot, const std::vector<double>& sizes) {
  for (Incoming& part : incoming_) {
    const std::size_t place = SizeAt(part.from, part.entry.kind);
    part.entry.slot = slot;
    auto made = KeptSlot::Make(folder_->path() + "/" + part.entry.FileName(),
                               static_cast<std::size_t>(sizes[2 * place]),
                               static_cast<std::size_t>(sizes[2 * place + 1]));
    if (!made) return tl::unexpected(made.error());
    part.slots.push_back(std::move(*made));
  }
  return {};
}

/// The files of the next slot, on all ranks or on none. What earlier attempts have left stays until
/// this attempt has a whole copy.
bool StateKeeper::MakeSlots(const CheckpointStep& at) {
  const int slot = static_cast<int>(copies_);
  if (slot == 1) RemoveEarlierAttempts();
  std::vector<double> sizes(2 * kKinds * parts_.size(), 0.0);
  const Result<void> made = MakeOwnSlots(slot, at, sizes);
  SumOverRanks(world_, sizes);
  if (GivesUp(made) || GivesUp(MakeBuddySlots(slot, sizes))) return false;
  kept_bytes_ = sent_bytes_ = 0;
  for (std::size_t rank = 0; rank < parts_.size(); ++rank) {
    for (const KeptKind kind : {KeptKind::kState, KeptKind::kOwnResiduals}) {
      const double bytes = sizes[2 * SizeAt(static_cast<int>(rank), kind) + 1];
      const KeptParts& parts = parts_[rank];
      kept_bytes_ += bytes;
      if ((kind == KeptKind::kState ? parts.state : parts.residuals).buddy != kNoBuddy)
        sent_bytes_ += bytes;
    }
  }
  return true;
}

/// If any rank has failed; the first of them says why.
bool StateKeeper::GivesUp(const Result<void>& made) {
  const auto own = static_cast<std::size_t>(world_.Rank());
  std::vector<double> failed(parts_.size(), 0.0);
  failed[own] = made ? 0.0 : 1.0;
  SumOverRanks(world_, failed);
  const auto first = std::find(failed.begin(), failed.end(), 1.0);
  if (first == failed.end()) return false;
  if (static_cast<std::size_t>(first - failed.begin()) == own)
    on_notice_(fmt::format(
        "the state is not kept in memory, a failure loses the steps since the last checkpoint: {}",
        made.error().message));
  on_ = false;
  outgoing_.clear();
  incoming_.clear();
  Remove();
  return true;
}

void StateKeeper::AfterStep(double step_s, bool one_state,
                            const std::function<CheckpointStep()>& describe,
                            const ConstTrainingArenas& arenas) {
  if (!on_ || !interval_.AfterStep(step_s) || !one_state) return;
  const auto begin = Clock::now();
  const double cpu = ProcessorSeconds();
  const CheckpointStep at = describe();
  if (copies_ == 0) Describe(!arenas[kResiduals].empty());
  if (copies_ < kKeptSlots && !MakeSlots(at)) return;
  Copy(at, arenas);
  // The first may have to decide alone; the second, as the first, had to make its slot.
  if (copies_ == 1 || copies_ > kKeptSlots) {
    cpu_s_ += ProcessorSeconds() - cpu;
    ++cpu_copies_;
  }
  if (interval_.AfterCopy(std::chrono::duration<double>(Clock::now() - begin).count())) Decide();
}

void StateKeeper::Fill(Outgoing& part, KeptSlot& slot, const CheckpointStep& at,
                       const ConstTrainingArenas& arenas) const {
  part.copy.Copy(arenas, slot.content().data(), part.copy.bytes(), threads_);
  part.shard.at = at;
  part.shard.entry.step = part.shard.index.step = at.step;
  part.shard.index.block_hashes = HashesOf(slot.content());
  const std::string text =
      OrThrow(KeptText(part.shard), RankExit::kCheckpoint, "keeping the state in memory");
  if (!slot.SetText(text))
    throw FatalError(RankExit::kCheckpoint, "keeping the state in memory", FatalError::kNoPeer,
                     fmt::format("{} bytes of words do not fit {}", text.size(), slot.path()));
}

void StateKeeper::Copy(const CheckpointStep& at, const ConstTrainingArenas& arenas) {
  world_.communicator().transport().main_thread().WorksAt("keeping the state in memory");
  const auto turn = static_cast<std::size_t>(copies_ % kKeptSlots);
  std::vector<Request> requests;
  for (Incoming& part : incoming_) {
    part.slots[turn].Begin();
    requests.push_back(world_.Receive(part.from, Purpose::kState, part.slots[turn].message()));
  }
  for (Outgoing& part : outgoing_) {
    KeptSlot& slot = part.slots[turn];
    slot.Begin();
    part.shard.entry.slot = static_cast<int>(turn);
    Fill(part, slot, at, arenas);
    if (part.buddy != kNoBuddy)
      requests.push_back(world_.Send(part.buddy, Purpose::kState, slot.message()));
    slot.Complete();
  }
  for (Request& request : requests) Await(request.Wait(CollectiveDeadline()));
  for (Incoming& part : incoming_) part.slots[turn].Complete();
  ++copies_;
}

/// All ranks go by the slowest one's costs.
void StateKeeper::Decide() {
  const auto own = static_cast<std::size_t>(world_.Rank());
  const auto ranks = static_cast<std::size_t>(world_.Size());
  const CopyCosts mine = interval_.Costs();
  std::vector<double> costs(2 * ranks + 1, 0.0);
  costs[own] = mine.copy_s;
  costs[ranks + own] = mine.step_s;
  costs.back() = cpu_s_ / static_cast<double>(std::max<std::int64_t>(1, cpu_copies_));
  cpu_s_ = 0;
  cpu_copies_ = 0;
  SumOverRanks(world_, costs);
  const auto middle = costs.begin() + static_cast<std::ptrdiff_t>(ranks);
  const CopyCosts largest{*std::max_element(costs.begin(), middle),
                          *std::max_element(middle, costs.end() - 1)};
  if (!interval_.Decide(largest) || own != 0) return;
  const std::int64_t every = interval_.every();
  on_notice_(fmt::format(
      "keeps the state in memory {}: {:.1f} MB, {:.1f} MB of them on a second "
      "node by the network; a copy takes {:.2g} s, {:.2g} s of processors, {:.1f} "
      "% of the steps",
      (every == 1 ? "after every step" : fmt::format("every {} steps", every)) +
          (RoundOf(plan_) == 1 ? "" : fmt::format(", at ends of rounds of {}", RoundOf(plan_))),
      kept_bytes_ / kMegabyte, sent_bytes_ / kMegabyte, largest.copy_s, costs.back(),
      100 * largest.copy_s / std::max(1e-9, largest.step_s * static_cast<double>(every))));
}

/// Of this node, by its first rank.
void StateKeeper::RemoveEarlierAttempts() const {
  if (!folder_ || FirstOnNode(plan_, world_.Rank()) != world_.Rank()) return;
  RemoveKept(folder_->path(),
             [this](const KeptEntry& entry) { return entry.attempt < run_.attempt; });
}

void StateKeeper::Remove() {
  if (!folder_) return;
  (void)RemoveFlatFolder(folder_->path());
}

}  // namespace adaptive_train
