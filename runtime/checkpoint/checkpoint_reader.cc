#include "runtime/checkpoint/checkpoint_reader.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstring>
#include <unordered_map>

#include "core/file_io.h"
#include "runtime/checkpoint/checkpoint_coverage.h"

namespace adaptive_train {
namespace {

constexpr auto kFloat = static_cast<std::int64_t>(sizeof(float));

void Copy(std::byte* to, std::span<const std::byte> from) {
  std::memcpy(to, from.data(), from.size());
}

void AddFloats(std::byte* to, std::span<const std::byte> from) {
  for (std::size_t at = 0; at < from.size(); at += sizeof(float)) {
    float sum, value;
    std::memcpy(&sum, to + at, sizeof sum);
    std::memcpy(&value, from.data() + at, sizeof value);
    sum += value;
    std::memcpy(to + at, &sum, sizeof sum);
  }
}

auto ByName(std::span<const CheckpointRequest> requests) {
  std::unordered_multimap<std::string_view, const CheckpointRequest*> by_name;
  for (const CheckpointRequest& request : requests) by_name.emplace(request.name, &request);
  return by_name;
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

const CheckpointParameter* CheckpointReader::Find(const std::string& name) const {
  for (const auto& parameter : manifest_.parameters)
    if (parameter.name == name) return &parameter;
  return nullptr;
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

/// What of a shard the requests want, ascending in the file.
std::vector<CheckpointReader::Transfer> CheckpointReader::TransfersOf(
    const ShardIndex& index, const RequestsByName& requests) {
  std::vector<Transfer> transfers;
  std::int64_t offset = 0;
  for (std::size_t arena = 0; arena < kTrainingArenas; ++arena) {
    for (const CheckpointPiece& piece : index.pieces[arena]) {
      const auto [first, last] = requests.equal_range(piece.name);
      for (auto found = first; found != last; ++found) {
        const CheckpointRequest& request = *found->second;
        if (request.arena != arena) continue;
        const std::int64_t request_end =
            request.begin + static_cast<std::int64_t>(request.to.size());
        const std::int64_t begin = std::max(piece.begin, request.begin);
        const std::int64_t end = std::min(piece.end, request_end);
        if (begin >= end) continue;
        auto* to = reinterpret_cast<std::byte*>(request.to.data() + (begin - request.begin));
        transfers.push_back(
            {offset + (begin - piece.begin) * kFloat, offset + (end - piece.begin) * kFloat, to});
      }
      offset += (piece.end - piece.begin) * kFloat;
    }
  }
  std::sort(transfers.begin(), transfers.end(),
            [](const Transfer& a, const Transfer& b) { return a.begin < b.begin; });
  return transfers;
}

/// Makes ascending transfers; each block is read and checked once.
Result<void> CheckpointReader::Transmit(std::size_t shard, const std::vector<Transfer>& transfers,
                                        Arrive arrive) const {
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
      arrive(transfer.to,
             content.subspan(static_cast<std::size_t>(at), static_cast<std::size_t>(bytes)));
      transfer.begin += bytes;
      transfer.to += bytes;
    }
  }
  return {};
}

Result<void> CheckpointReader::Read(std::span<const CheckpointRequest> requests) const {
  for (const CheckpointRequest& request : requests) {
    const CheckpointParameter* parameter = Find(request.name);
    if (parameter == nullptr)
      return FailAt(folder_, "has no parameter \"" + Printable(request.name) + "\"");
    const auto elements = static_cast<std::int64_t>(request.to.size());
    if (request.arena >= kResiduals || request.begin < 0 ||
        elements > parameter->count - request.begin) {
      return FailAt(folder_,
                    fmt::format("elements [{}, {}) of {} were asked for, it has {}", request.begin,
                                request.begin + elements, request.name, parameter->count));
    }
  }
  const RequestsByName by_name = ByName(requests);
  for (std::size_t shard = 0; shard < indices_.size(); ++shard) {
    const std::vector<Transfer> transfers = TransfersOf(indices_[shard], by_name);
    if (transfers.empty()) continue;
    auto read = Transmit(shard, transfers, Copy);
    if (!read) return read;
  }
  return {};
}

Result<std::vector<CheckpointRequest>> CheckpointReader::RequestsFor(
    const ParameterLayout& layout, std::size_t arena, std::span<float> values,
    const ElementRanges& ranges) const {
  for (const ParameterRange& range : layout.ranges()) {
    const CheckpointParameter wanted{range.name, range.shape, range.count};
    const CheckpointParameter* there = Find(range.name);
    if (there == nullptr || *there != wanted) {
      return FailAt(
          folder_, fmt::format("has {} where this model has {}", InWords(there), InWords(&wanted)));
    }
  }
  std::vector<CheckpointRequest> requests;
  for (const CheckpointPiece& piece : PiecesOf(layout, ranges)) {
    requests.push_back(
        {arena, piece.name, piece.begin,
         values.subspan(static_cast<std::size_t>(layout.OffsetOf(piece.name) + piece.begin),
                        static_cast<std::size_t>(piece.end - piece.begin))});
  }
  return requests;
}

Result<void> CheckpointReader::Read(const ParameterLayout& layout, const TrainingArenas& arenas,
                                    const ReadingRank& reading) const {
  std::vector<CheckpointRequest> requests;
  for (std::size_t arena = 0; arena < kResiduals; ++arena) {
    if (arenas[arena].empty()) continue;
    auto more = RequestsFor(layout, arena, arenas[arena], reading.ranges);
    if (!more) return tl::unexpected(more.error());
    requests.insert(requests.end(), more->begin(), more->end());
  }
  auto read = Read(requests);
  if (!read || arenas[kResiduals].empty()) return read;
  return ReadResiduals(layout, arenas[kResiduals], reading);
}

Result<void> CheckpointReader::ReadResiduals(const ParameterLayout& layout,
                                             std::span<float> residuals,
                                             const ReadingRank& reading) const {
  auto requests = RequestsFor(layout, kResiduals, residuals, {{0, layout.size()}});
  if (!requests) return tl::unexpected(requests.error());
  const RequestsByName by_name = ByName(*requests);
  std::fill(residuals.begin(), residuals.end(), 0.0F);
  const auto first = static_cast<std::size_t>(reading.rank);
  for (std::size_t shard = first; shard < indices_.size();
       shard += static_cast<std::size_t>(reading.ranks)) {
    const std::vector<Transfer> transfers = TransfersOf(indices_[shard], by_name);
    if (transfers.empty()) continue;
    // The first are copied: 0 + -0 is 0, and a rank's own must come back as they were.
    auto read = Transmit(shard, transfers, shard == first ? Copy : AddFloats);
    if (!read) return read;
  }
  return {};
}

std::int64_t CheckpointReader::ResidualElements() const {
  std::int64_t elements = 0;
  for (const ShardIndex& index : indices_)
    for (const CheckpointPiece& piece : index.pieces[kResiduals])
      elements += piece.end - piece.begin;
  return elements;
}

}  // namespace adaptive_train
