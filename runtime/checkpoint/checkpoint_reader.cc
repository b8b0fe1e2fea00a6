#include "runtime/checkpoint/checkpoint_reader.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <unordered_map>

#include "core/file_io.h"
#include "kernels/host_access.h"
#include "runtime/checkpoint/checkpoint_coverage.h"

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

std::string InWords(const CheckpointParameter* parameter) {
  if (parameter == nullptr) return "nothing";
  return fmt::format("{} {}", Printable(parameter->name), parameter->shape);
}

}  // namespace

std::string CheckpointReader::PathOf(std::size_t shard, const char* extension) const {
  return folder_ + "/" + ShardName(shard) + extension;
}

Result<CheckpointReader> CheckpointReader::Open(const std::string& folder) {
  CheckpointReader reader;
  reader.folder_ = folder;
  auto done = ReadCheckpointText(folder + "/DONE");
  if (!done) return FailAt(folder, "not a complete checkpoint, it has no DONE that can be read");
  const std::string manifest_path = folder + "/manifest.json";
  auto text = ReadCheckpointText(manifest_path);
  if (!text) return tl::unexpected(text.error());
  // A manifest of another version, too, says so before anything is said of its hash.
  auto manifest = ParseManifest(*text, manifest_path);
  if (!manifest) return tl::unexpected(manifest.error());
  if (*done != DoneText(*text)) return FailAt(manifest_path, "does not fit the hash in DONE");
  reader.manifest_ = std::move(*manifest);
  auto opened = reader.OpenShards();
  if (!opened) return tl::unexpected(opened.error());
  return reader;
}

Result<void> CheckpointReader::OpenShards() {
  for (std::size_t shard = 0; shard < manifest_.shards.size(); ++shard) {
    const std::string path = PathOf(shard, ".json");
    auto text = ReadCheckpointText(path);
    if (!text) return tl::unexpected(text.error());
    if (HashOf(*text) != manifest_.shards[shard].index_hash)
      return FailAt(path, "does not fit the hash in manifest.json");
    auto index = ParseIndex(*text, path);
    if (!index) return tl::unexpected(index.error());
    if (index->step != manifest_.at.step)
      return FailAt(path, fmt::format("is of step {}, manifest.json of step {}", index->step,
                                      manifest_.at.step));
    const std::int64_t bytes = manifest_.shards[shard].bytes;
    if (index->Bytes() != bytes)
      return FailAt(path,
                    fmt::format("lists {} bytes, the manifest says {}", index->Bytes(), bytes));
    auto size = SizeOfFile(PathOf(shard, ".bin"));
    if (!size) return tl::unexpected(size.error());
    if (*size != bytes) {
      return FailAt(PathOf(shard, ".bin"),
                    fmt::format("{} bytes, the manifest says {}", *size, bytes));
    }
    indices_.push_back(std::move(*index));
  }
  auto covered = CheckCoverage(manifest_.parameters, indices_);
  if (!covered) return FailIn(folder_, covered.error());
  return {};
}

Result<void> CheckpointReader::Expect(const std::string& identity,
                                      const std::vector<CheckpointParameter>& parameters) const {
  const auto& here = manifest_.parameters;
  for (std::size_t i = 0; i < std::max(here.size(), parameters.size()); ++i) {
    const auto* there = i < here.size() ? &here[i] : nullptr;
    const auto* wanted = i < parameters.size() ? &parameters[i] : nullptr;
    if (there != nullptr && wanted != nullptr && *there == *wanted) continue;
    return FailAt(folder_, fmt::format("holds another model's parameters: {} where this run has {}",
                                       InWords(there), InWords(wanted)));
  }
  if (manifest_.at.identity != identity) {
    return FailAt(folder_, fmt::format("was made with \"{}\", this run has \"{}\"; name another "
                                       "run folder or the same settings",
                                       Printable(manifest_.at.identity), identity));
  }
  return {};
}

Result<BlockReader> CheckpointReader::OpenBlocks(std::size_t shard) const {
  const ShardIndex& index = indices_[shard];
  return BlockReader::Open(PathOf(shard, ".bin"), index.Bytes(), index.block_hashes);
}

Result<void> CheckpointReader::Verify(std::int64_t part, std::int64_t parts) const {
  std::int64_t all = 0;
  for (const ShardIndex& index : indices_)
    all += static_cast<std::int64_t>(index.block_hashes.size());
  const ElementRange own = PartOf(all, part, parts);
  std::int64_t first = 0;  // of the shard's blocks, among those of all shards
  for (std::size_t shard = 0; shard < indices_.size(); ++shard) {
    const auto here = static_cast<std::int64_t>(indices_[shard].block_hashes.size());
    const std::int64_t begin = std::max(own.begin, first), end = std::min(own.end, first + here);
    first += here;
    if (begin >= end) continue;
    auto blocks = OpenBlocks(shard);
    if (!blocks) return tl::unexpected(blocks.error());
    for (std::int64_t block = begin; block < end; ++block) {
      auto content = blocks->Read(static_cast<std::size_t>(block - (first - here)));
      if (!content) return tl::unexpected(content.error());
      on_block_();
    }
  }
  return {};
}

/// An arena's elements in a shard's file, in its order. The coverage was checked.
std::vector<ArenaRun> CheckpointReader::RunsIn(const ModelPlaces& places, std::size_t shard,
                                               std::size_t arena) const {
  const ShardIndex& index = indices_[shard];
  if (index.listed) return ListedRuns(places, (*index.listed)[arena]);
  const CheckpointArena& held = *indices_[static_cast<std::size_t>(index.arena_of)].arena;
  const ArenaMap map = *ArenaMap::Of(places, held.blocks);
  if (arena == kResiduals)
    return map.RunsOf(index.residuals > 0 ? map.WithoutCopies({{0, map.size()}}) : ElementRanges{});
  return map.RunsOf(map.WithoutCopies(held.rule.OwnedBy(index.place)));
}

/// Appends what of `runs`, which lie in the file from byte `offset` on, is wanted in `arena`.
void CheckpointReader::AppendTransfers(std::vector<Transfer>& transfers, std::int64_t offset,
                                       const std::vector<ArenaRun>& runs,
                                       const std::vector<ArenaRun>& wanted,
                                       std::span<float> arena) {
  for (const ArenaRun& run : runs) {
    auto want = std::partition_point(wanted.begin(), wanted.end(), [&](const ArenaRun& w) {
      return w.place + w.count <= run.place;
    });
    for (; want != wanted.end() && want->place < run.place + run.count; ++want) {
      const std::int64_t begin = std::max(run.place, want->place);
      const std::int64_t end = std::min(run.place + run.count, want->place + want->count);
      float* const to = arena.data() + want->begin + (begin - want->place);
      transfers.push_back(
          {offset + (begin - run.place) * kFloat, offset + (end - run.place) * kFloat, to});
    }
    offset += run.count * kFloat;
  }
}

/// What of a shard's parameters and moments is wanted, ascending in the file.
std::vector<CheckpointReader::Transfer> CheckpointReader::StateTransfers(
    const ModelPlaces& places, std::size_t shard, const std::vector<ArenaRun>& wanted,
    const TrainingArenas& arenas) const {
  const ShardIndex& index = indices_[shard];
  std::vector<Transfer> transfers;
  std::vector<ArenaRun> runs;
  std::int64_t offset = 0;
  for (std::size_t arena = 0; arena < kResiduals; ++arena) {
    // The same for all three unless they are listed.
    if (arena == 0 || index.listed) runs = RunsIn(places, shard, arena);
    if (!arenas[arena].empty()) AppendTransfers(transfers, offset, runs, wanted, arenas[arena]);
    offset += index.ElementsOf(arena) * kFloat;
  }
  return transfers;
}

/// Makes ascending transfers; each block is read and checked once.
Result<void> CheckpointReader::Transmit(std::size_t shard, const std::vector<Transfer>& transfers,
                                        kernels::DeviceMemory& memory, Arrive arrive) const {
  auto blocks = OpenBlocks(shard);
  if (!blocks) return tl::unexpected(blocks.error());
  std::int64_t read = -1;  // the block that `content` holds
  std::span<const std::byte> content;
  for (Transfer transfer : transfers) {
    while (transfer.begin < transfer.end) {
      const std::int64_t block = transfer.begin / kCheckpointBlockBytes;
      if (block != read) {
        auto next = blocks->Read(static_cast<std::size_t>(block));
        if (!next) return tl::unexpected(next.error());
        content = *next;
        read = block;
        on_block_();
      }
      const std::int64_t at = transfer.begin - block * kCheckpointBlockBytes;
      const std::int64_t bytes =
          std::min(transfer.end - transfer.begin, static_cast<std::int64_t>(content.size()) - at);
      arrive(memory, transfer.to,
             content.subspan(static_cast<std::size_t>(at), static_cast<std::size_t>(bytes)));
      transfer.begin += bytes;
      transfer.to += bytes / kFloat;
    }
  }
  return {};
}

Result<void> CheckpointReader::Read(const ReadingRank& reading,
                                    const TrainingArenas& arenas) const {
  const ModelPlaces places(manifest_.parameters);
  const auto held = ArenaMap::Of(places, reading.blocks);
  if (!held) return FailIn(folder_, held.error());
  for (const std::span<float> arena : arenas.spans) {
    const auto size = static_cast<std::int64_t>(arena.size());
    if (size > 0 && size != held->size())
      return FailAt(folder_, fmt::format("its model has {} elements where this run has {}",
                                         held->size(), size));
  }
  const std::vector<ArenaRun> wanted = ByPlace(held->RunsOf(reading.ranges));
  for (std::size_t shard = 0; shard < indices_.size(); ++shard) {
    const std::vector<Transfer> transfers = StateTransfers(places, shard, wanted, arenas);
    if (transfers.empty()) continue;
    auto read = Transmit(shard, transfers, *arenas.memory, Copy);
    if (!read) return read;
  }
  if (arenas[kResiduals].empty()) return {};
  const std::vector<ArenaRun> all = ByPlace(held->RunsOf({{0, held->size()}}));
  return ReadResiduals(places, all, reading, arenas);
}

Result<void> CheckpointReader::ReadResiduals(const ModelPlaces& places,
                                             const std::vector<ArenaRun>& wanted,
                                             const ReadingRank& reading,
                                             const TrainingArenas& arenas) const {
  const std::span<float> residuals = arenas[kResiduals];
  arenas.memory->Clear(residuals.data(), residuals.size_bytes());
  std::unordered_map<std::int64_t, std::int64_t> seen;  // shards of each arena
  for (std::size_t shard = 0; shard < indices_.size(); ++shard) {
    const ShardIndex& index = indices_[shard];
    if (seen[index.arena_of]++ % reading.ranks != reading.rank) continue;
    const std::int64_t offset = index.Bytes() - index.ElementsOf(kResiduals) * kFloat;
    std::vector<Transfer> transfers;
    AppendTransfers(transfers, offset, RunsIn(places, shard, kResiduals), wanted, residuals);
    if (transfers.empty()) continue;
    auto read = Transmit(shard, transfers, *arenas.memory, AddFloats);
    if (!read) return read;
  }
  return {};
}

std::int64_t CheckpointReader::ResidualElements() const {
  std::int64_t elements = 0;
  for (const ShardIndex& index : indices_) elements += index.ElementsOf(kResiduals);
  return elements;
}

}  // namespace adaptive_train
