#include "runtime/checkpoint/state_transfers.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cstring>

#include "kernels/host_access.h"

namespace adaptive_train {
namespace {

constexpr auto kFloat = static_cast<std::int64_t>(sizeof(float));

void Copy(kernels::DeviceMemory& memory, float* to, std::span<const std::byte> from) {
  memory.CopyFromHost(to, from.data(), from.size());
}

/// Where nothing is yet, what comes is copied: 0 + -0 is 0, and a rank's own must come back as it
/// was.
void AddFloats(kernels::DeviceMemory& memory, float* to, std::span<const std::byte> from) {
  const std::span<float> into(to, from.size() / sizeof(float));
  kernels::ChangeOnHost(memory, into, [&](std::size_t first, std::span<float> sums) {
    const std::byte* next = from.data() + first * sizeof(float);
    for (float& sum : sums) {
      float value;
      std::memcpy(&value, next, sizeof value);
      sum = std::bit_cast<std::uint32_t>(sum) == 0 ? value : sum + value;
      next += sizeof value;
    }
  });
}

/// The elements that a reader wants, by their places in the model; each is in its arena once.
std::vector<ArenaRun> ByPlace(std::vector<ArenaRun> runs) {
  std::sort(runs.begin(), runs.end(),
            [](const ArenaRun& a, const ArenaRun& b) { return a.place < b.place; });
  return runs;
}

/// The pieces that an index of formats 2 and 3 lists.
std::vector<ArenaRun> ListedRuns(const ModelPlaces& places,
                                 const std::vector<ListedPiece>& pieces) {
  std::vector<ArenaRun> runs;
  std::int64_t begin = 0;
  for (const ListedPiece& piece : pieces) {
    const std::int64_t count = piece.end - piece.begin;
    runs.push_back({begin, places.Find(piece.name)->begin + piece.begin, count});
    begin += count;
  }
  return runs;
}

/// Calls `each(begin, end, to)` for what of `runs`, which lie in the shard from byte `offset` on, is
/// wanted in `arena`.
template <class Each>
void ForWanted(std::int64_t offset, const std::vector<ArenaRun>& runs,
               const std::vector<ArenaRun>& wanted, std::span<float> arena, Each each) {
  for (const ArenaRun& run : runs) {
    auto want = std::partition_point(wanted.begin(), wanted.end(), [&](const ArenaRun& w) {
      return w.place + w.count <= run.place;
    });
    for (; want != wanted.end() && want->place < run.place + run.count; ++want) {
      const std::int64_t begin = std::max(run.place, want->place);
      const std::int64_t end = std::min(run.place + run.count, want->place + want->count);
      each(offset + (begin - run.place) * kFloat, offset + (end - run.place) * kFloat,
           arena.data() + want->begin + (begin - want->place));
    }
    offset += run.count * kFloat;
  }
}

}  // namespace

std::vector<std::size_t> ShardTransfers::Blocks() const {
  std::vector<std::size_t> blocks;
  for (const Transfer& transfer : transfers_) {
    const auto last = static_cast<std::size_t>((transfer.end - 1) / kCheckpointBlockBytes);
    auto block = static_cast<std::size_t>(transfer.begin / kCheckpointBlockBytes);
    if (!blocks.empty()) block = std::max(block, blocks.back() + 1);
    for (; block <= last; ++block) blocks.push_back(block);
  }
  return blocks;
}

void ShardTransfers::Put(std::size_t block, std::span<const std::byte> content) const {
  const std::int64_t first = static_cast<std::int64_t>(block) * kCheckpointBlockBytes;
  const std::int64_t past = first + static_cast<std::int64_t>(content.size());
  auto transfer = std::partition_point(transfers_.begin(), transfers_.end(),
                                       [&](const Transfer& t) { return t.end <= first; });
  for (; transfer != transfers_.end() && transfer->begin < past; ++transfer) {
    const std::int64_t begin = std::max(first, transfer->begin);
    const std::int64_t end = std::min(past, transfer->end);
    transfer->arrive(*memory_, transfer->to + (begin - transfer->begin) / kFloat,
                     content.subspan(static_cast<std::size_t>(begin - first),
                                     static_cast<std::size_t>(end - begin)));
  }
}

Result<StateTransfers> StateTransfers::Of(const std::vector<CheckpointParameter>& parameters,
                                          const std::vector<ShardIndex>& indices,
                                          const ReadingRank& reading,
                                          const TrainingArenas& arenas) {
  StateTransfers transfers(parameters, indices, arenas);
  const auto held = ArenaMap::Of(transfers.places_, reading.blocks);
  if (!held) return tl::unexpected(held.error());
  for (const std::span<float> arena : arenas.spans) {
    const auto size = static_cast<std::int64_t>(arena.size());
    if (size > 0 && size != held->size())
      return Fail(
          fmt::format("its model has {} elements where this run has {}", held->size(), size),
          ExitCode::kRankFailure);
  }
  transfers.wanted_ = ByPlace(held->RunsOf(reading.ranges));
  transfers.rank_ = reading.rank;
  transfers.ranks_ = reading.ranks;
  const std::span<float> residuals = arenas[kResiduals];
  if (residuals.empty()) return transfers;
  transfers.all_ = ByPlace(held->RunsOf({{0, held->size()}}));
  arenas.memory->Clear(residuals.data(), residuals.size_bytes());
  return transfers;
}

/// An arena's elements in a shard, in its order.
std::vector<ArenaRun> StateTransfers::RunsIn(const ShardIndex& index, std::size_t arena) const {
  if (index.listed) return ListedRuns(places_, (*index.listed)[arena]);
  if (index.ElementsOf(arena) == 0) return {};
  const CheckpointArena& held = *indices_[static_cast<std::size_t>(index.arena_of)].arena;
  const ArenaMap map = *ArenaMap::Of(places_, held.blocks);
  if (arena == kResiduals) return map.RunsOf(map.WithoutCopies({{0, map.size()}}));
  return map.RunsOf(map.WithoutCopies(held.rule.OwnedBy(index.place)));
}

ShardTransfers StateTransfers::Next() {
  const ShardIndex& index = indices_[next_++];
  ShardTransfers shard;
  shard.memory_ = arenas_.memory;
  std::vector<ArenaRun> runs;
  std::int64_t offset = 0;
  const auto add = [&](ShardTransfers::Arrive arrive, const std::vector<ArenaRun>& wanted,
                       std::span<float> arena) {
    ForWanted(offset, runs, wanted, arena, [&](std::int64_t begin, std::int64_t end, float* to) {
      shard.transfers_.push_back({begin, end, to, arrive});
    });
  };
  for (std::size_t arena = 0; arena < kResiduals; ++arena) {
    // The same for all three unless they are listed.
    if (arena == 0 || index.listed) runs = RunsIn(index, arena);
    if (!arenas_[arena].empty()) add(Copy, wanted_, arenas_[arena]);
    offset += index.ElementsOf(arena) * kFloat;
  }
  if (arenas_[kResiduals].empty() || seen_[index.arena_of]++ % ranks_ != rank_) return shard;
  runs = RunsIn(index, kResiduals);
  add(AddFloats, all_, arenas_[kResiduals]);
  return shard;
}

}  // namespace adaptive_train
