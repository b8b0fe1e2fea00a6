#include "runtime/buddy/state_restorer.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <deque>
#include <utility>

#include "runtime/checkpoint/checkpoint_coverage.h"
#include "runtime/checkpoint/checkpoint_files.h"
#include "runtime/comm/collective.h"
#include "runtime/comm/communicator.h"

namespace adaptive_train {
namespace {

/// Blocks under way from one rank, and to one.
constexpr std::size_t kBlocksUnderWay = 8;

tl::unexpected<Error> FailKept(const std::string& why) { return Fail(why, ExitCode::kRankFailure); }

/// Every rank's text, by rank.
std::vector<std::string> GatherTexts(Group& group, const std::string& mine) {
  const auto own = static_cast<std::size_t>(group.Rank());
  std::vector<double> sizes(static_cast<std::size_t>(group.Size()), 0.0);
  sizes[own] = static_cast<double>(mine.size());
  SumOverRanks(group, sizes);
  std::vector<std::string> texts;
  for (const double size : sizes) texts.emplace_back(static_cast<std::size_t>(size), '\0');
  texts[own] = mine;
  std::vector<std::span<std::byte>> chunks;
  for (std::string& text : texts)
    chunks.push_back(std::as_writable_bytes(std::span(text.data(), text.size())));
  Await(group.AllGather(Purpose::kState, std::move(chunks)).Wait(CollectiveDeadline()));
  return texts;
}

std::vector<std::string_view> LinesOf(std::string_view text, char end) {
  std::vector<std::string_view> lines;
  for (std::size_t at = text.find(end); at != std::string_view::npos; at = text.find(end)) {
    lines.push_back(text.substr(0, at));
    text.remove_prefix(at + 1);
  }
  return lines;
}

/// A sum that tells all ranks whether one has failed.
bool AnyFailed(Group& group, bool failed) {
  double failures[1] = {failed ? 1.0 : 0.0};
  SumOverRanks(group, failures);
  return failures[0] > 0;
}

Result<void> Check(const ShardIndex& index, std::size_t block, std::span<const std::byte> content,
                   const std::string& what) {
  if (HashOf(content) == index.block_hashes[block]) return {};
  return FailKept(fmt::format("{}: block {} does not fit its hash", what, block));
}

/// That all elements of parameters and moments are there once, and residuals are of whole arenas.
Result<void> CheckShards(const std::vector<CheckpointParameter>& parameters,
                         const std::vector<KeptShard>& shards,
                         const std::vector<ShardIndex>& indices) {
  const ModelPlaces places(parameters);
  std::size_t states = 0;
  while (states < shards.size() && shards[states].entry.kind == KeptKind::kState) ++states;
  for (std::size_t i = states; i < shards.size(); ++i) {
    const auto map = ArenaMap::Of(places, shards[i].index.arena->blocks);
    if (!map) return tl::unexpected(map.error());
    std::int64_t all = 0;
    for (const ElementRange& range : map->WithoutCopies({{0, map->size()}})) all += range.size();
    if (shards[i].index.elements != 0 || shards[i].index.residuals != all)
      return FailKept(shards[i].entry.FileName() + ": is not of its arena");
  }
  return CheckCoverage(parameters,
                       {indices.begin(), indices.begin() + static_cast<std::ptrdiff_t>(states)});
}

}  // namespace

StateRestorer::StateRestorer(const KeptRun& run, const Plan& plan, std::string folder,
                             const std::vector<CheckpointParameter>& parameters, Group& world,
                             std::function<void(const std::string& line)> on_notice)
    : run_(run),
      folder_(std::move(folder)),
      parameters_(parameters),
      world_(world),
      on_notice_(std::move(on_notice)),
      first_on_node_(FirstOnNode(plan, world.Rank())) {}

/// On this node, where this rank speaks for it.
std::vector<KeptEntry> StateRestorer::Found() const {
  if (folder_.empty() || first_on_node_ != world_.Rank()) return {};
  return WholeParts(folder_, run_.attempt);
}

std::vector<FoundState> StateRestorer::States() {
  std::string mine;
  for (const KeptEntry& entry : Found()) mine += KeptLine(entry) + "\n";
  std::vector<std::vector<KeptEntry>> found;
  for (const std::string& text : GatherTexts(world_, mine)) {
    std::vector<KeptEntry>& entries = found.emplace_back();
    for (const std::string_view line : LinesOf(text, '\n'))
      entries.push_back(OrThrow(ParseKeptEntry(line, "a rank's list of kept states"),
                                RankExit::kCheckpoint, "looking for states in memory"));
  }
  return CompleteStates(found);
}

std::optional<CheckpointStep> StateRestorer::Restore(
    std::int64_t least, const ReadingRank& reading, const TrainingArenas& arenas,
    const std::function<std::span<float>()>& residuals_to_take) {
  if (!run_.committed) return std::nullopt;
  // A checkpoint that is newer than what was reported has been refused: training went on before it.
  if (least > *run_.committed) least = 0;
  world_.communicator().transport().main_thread().WorksAt("taking up a state from memory");
  for (const FoundState& state : InTurn(States(), *run_.committed)) {
    if (state.step < least || state.step == 0) continue;
    // Without it nothing is lost that was reported; with it, what its step would have reported is.
    if (state.step > *run_.committed && least >= *run_.committed) continue;
    auto read = Read(state, reading, arenas, residuals_to_take);
    if (!read)
      on_notice_(fmt::format("refused: the state of step {} in memory: {}", state.step,
                             read.error().message));
    if (AnyFailed(world_, !read)) continue;
    if (first_on_node_ == world_.Rank() && !folder_.empty())
      RemoveKept(folder_, [&](const KeptEntry& entry) {
        return entry.attempt < run_.attempt &&
               !(entry.attempt == state.attempt && entry.slot == state.shards.front().entry.slot);
      });
    return std::move(*read);
  }
  return std::nullopt;
}

bool StateRestorer::IsHere(const FoundShard& shard) const {
  return std::ranges::find(shard.holders, first_on_node_) != shard.holders.end();
}

/// The words of all shards: each comes from its first holder. A torn one has no index.
std::vector<KeptShard> StateRestorer::Describe(const FoundState& state) {
  std::string mine;
  for (const FoundShard& shard : state.shards) {
    if (shard.holders.front() != world_.Rank()) continue;
    const std::string name = shard.entry.FileName();
    if (auto file = KeptFile::Open(folder_ + "/" + name)) {
      mine += file->text().substr(0, file->text().find('\0'));
      files_.insert_or_assign(name, std::move(*file));
    }
    mine += '\0';
  }
  const std::vector<std::string> texts = GatherTexts(world_, mine);
  std::vector<std::vector<std::string_view>> of;
  for (const std::string& text : texts) of.push_back(LinesOf(text, '\0'));
  std::vector<std::size_t> next(of.size(), 0);
  std::vector<KeptShard> shards;
  for (const FoundShard& shard : state.shards) {
    const auto holder = static_cast<std::size_t>(shard.holders.front());
    const std::string name = shard.entry.FileName();
    const std::string_view text = next[holder] < of[holder].size() ? of[holder][next[holder]] : "";
    ++next[holder];
    auto parsed = ParseKeptShard(text, name);
    if (!parsed || parsed->entry.step != state.step || parsed->entry.FileName() != name) break;
    shards.push_back(std::move(*parsed));
  }
  return shards;
}

/// All ranks fail or none before the first block is sent; then each goes on to the end.
Result<CheckpointStep> StateRestorer::Read(
    const FoundState& state, const ReadingRank& reading, const TrainingArenas& arenas,
    const std::function<std::span<float>()>& residuals_to_take) {
  const std::vector<KeptShard> shards = Describe(state);
  if (shards.size() < state.shards.size())
    return FailKept(state.shards[shards.size()].entry.FileName() + " is not whole any more");
  const std::vector<ShardIndex> indices = Renumbered(shards);
  auto fits = CheckShards(parameters_, shards, indices);
  if (!fits) return tl::unexpected(fits.error());
  TrainingArenas into = arenas;
  if (state.shards.front().entry.residuals && into[kResiduals].empty())
    into[kResiduals] = residuals_to_take();
  auto transfers = StateTransfers::Of(parameters_, indices, reading, into);
  if (AnyFailed(world_, !transfers))
    return FailKept(transfers ? "another rank's arenas do not fit" : transfers.error().message);
  std::vector<ShardTransfers> of_shards;
  for (std::size_t i = 0; i < indices.size(); ++i) of_shards.push_back(transfers->Next());
  auto here = ReadHere(state, indices, of_shards);
  auto others = ReadFromOthers(state, indices, of_shards);
  if (!here) return tl::unexpected(here.error());
  if (!others) return tl::unexpected(others.error());
  return shards.front().at;
}

Result<void> StateRestorer::ReadHere(const FoundState& state,
                                     const std::vector<ShardIndex>& indices,
                                     const std::vector<ShardTransfers>& transfers) const {
  for (std::size_t i = 0; i < indices.size(); ++i) {
    const std::vector<std::size_t> blocks = transfers[i].Blocks();
    if (blocks.empty() || !IsHere(state.shards[i])) continue;
    const std::string path = folder_ + "/" + state.shards[i].entry.FileName();
    auto file = KeptFile::Open(path);
    if (!file) return tl::unexpected(file.error());
    for (const std::size_t block : blocks) {
      const auto content = file->Block(block);
      auto good = Check(indices[i], block, content, path);
      if (!good) return good;
      transfers[i].Put(block, content);
    }
  }
  return {};
}

/// Shard by shard, in the same order on all ranks.
Result<void> StateRestorer::ReadFromOthers(const FoundState& state,
                                           const std::vector<ShardIndex>& indices,
                                           const std::vector<ShardTransfers>& transfers) {
  std::vector<double> wanted(indices.size(), 0.0);
  for (std::size_t i = 0; i < indices.size(); ++i)
    if (!IsHere(state.shards[i])) wanted[i] = transfers[i].Blocks().empty() ? 0.0 : 1.0;
  SumOverRanks(world_, wanted);
  Result<void> outcome;
  for (std::size_t i = 0; i < indices.size(); ++i) {
    if (wanted[i] == 0) continue;
    const FoundShard& shard = state.shards[i];
    const int holder = shard.holders.front();
    std::vector<std::size_t> blocks;
    if (!IsHere(shard)) blocks = transfers[i].Blocks();
    const auto wishes = Wishes(blocks, indices[i].block_hashes.size());
    Result<void> done;
    if (holder == world_.Rank()) SendBlocks(shard, wishes);
    if (!blocks.empty()) done = ReceiveBlocks(holder, indices[i], transfers[i]);
    if (outcome && !done) outcome = std::move(done);
  }
  return outcome;
}

/// [ranks][blocks]: which of a shard's blocks each rank asks for.
std::vector<std::vector<bool>> StateRestorer::Wishes(const std::vector<std::size_t>& blocks,
                                                     std::size_t all) {
  const auto ranks = static_cast<std::size_t>(world_.Size());
  std::vector<std::vector<std::byte>> bytes(ranks, std::vector<std::byte>(all));
  for (const std::size_t block : blocks)
    bytes[static_cast<std::size_t>(world_.Rank())][block] = std::byte{1};
  std::vector<std::span<std::byte>> chunks(bytes.begin(), bytes.end());
  Await(world_.AllGather(Purpose::kState, std::move(chunks)).Wait(CollectiveDeadline()));
  std::vector<std::vector<bool>> wishes(ranks, std::vector<bool>(all));
  for (std::size_t rank = 0; rank < ranks; ++rank)
    for (std::size_t block = 0; block < all; ++block)
      wishes[rank][block] = bytes[rank][block] != std::byte{};
  return wishes;
}

void StateRestorer::SendBlocks(const FoundShard& shard,
                               const std::vector<std::vector<bool>>& wishes) {
  const KeptFile& file = Opened(shard);
  std::deque<Request> under_way;
  const auto await = [&](std::size_t most) {
    for (; under_way.size() > most; under_way.pop_front())
      Await(under_way.front().Wait(CollectiveDeadline()));
  };
  for (std::size_t block = 0; block < wishes.front().size(); ++block) {
    for (std::size_t rank = 0; rank < wishes.size(); ++rank) {
      if (!wishes[rank][block]) continue;
      under_way.push_back(world_.Send(static_cast<int>(rank), Purpose::kState, file.Block(block)));
      await(kBlocksUnderWay - 1);
    }
  }
  await(0);
}

Result<void> StateRestorer::ReceiveBlocks(int holder, const ShardIndex& index,
                                          const ShardTransfers& transfers) {
  struct UnderWay {
    std::size_t block;
    std::vector<std::byte> content;
    Request request;
  };
  std::deque<UnderWay> under_way;
  Result<void> outcome;
  const auto take = [&](std::size_t most) {
    for (; under_way.size() > most; under_way.pop_front()) {
      UnderWay& first = under_way.front();
      Await(first.request.Wait(CollectiveDeadline()));
      auto good = Check(index, first.block, first.content, fmt::format("from rank {}", holder));
      if (good) transfers.Put(first.block, first.content);
      if (outcome && !good) outcome = std::move(good);
    }
  };
  const auto bytes = static_cast<std::size_t>(index.Bytes());
  for (const std::size_t block : transfers.Blocks()) {
    take(kBlocksUnderWay - 1);
    const std::size_t begin = block * static_cast<std::size_t>(kCheckpointBlockBytes);
    UnderWay& next = under_way.emplace_back();
    next.block = block;
    next.content.resize(std::min<std::size_t>(kCheckpointBlockBytes, bytes - begin));
    next.request = world_.Receive(holder, Purpose::kState, next.content);
  }
  take(0);
  return outcome;
}

}  // namespace adaptive_train
