#include "runtime/checkpoint/checkpoint_reader.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "core/file_io.h"
#include "runtime/checkpoint/checkpoint_coverage.h"

namespace adaptive_train {
namespace {

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

Result<void> CheckpointReader::Read(const ReadingRank& reading,
                                    const TrainingArenas& arenas) const {
  auto transfers = StateTransfers::Of(manifest_.parameters, indices_, reading, arenas);
  if (!transfers) return FailIn(folder_, transfers.error());
  for (std::size_t shard = 0; shard < indices_.size(); ++shard) {
    const ShardTransfers of_shard = transfers->Next();
    const std::vector<std::size_t> needed = of_shard.Blocks();
    if (needed.empty()) continue;
    auto blocks = OpenBlocks(shard);
    if (!blocks) return tl::unexpected(blocks.error());
    for (const std::size_t block : needed) {
      auto content = blocks->Read(block);
      if (!content) return tl::unexpected(content.error());
      on_block_();
      of_shard.Put(block, *content);
    }
  }
  return {};
}

std::int64_t CheckpointReader::ResidualElements() const {
  std::int64_t elements = 0;
  for (const ShardIndex& index : indices_) elements += index.ElementsOf(kResiduals);
  return elements;
}

}  // namespace adaptive_train
