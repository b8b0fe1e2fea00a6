#include "runtime/checkpoint/checkpoint_shard.h"

#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <type_traits>
#include <utility>

#include "core/file_io.h"
#include "runtime/checkpoint/checkpoint_coverage.h"
#include "runtime/checkpoint/checkpoint_files.h"

namespace adaptive_train {
namespace {

Result<void> MakePartFolder(const CheckpointFolder& folder, const std::string& part) {
  auto made = MakeFolder(folder.path());
  if (!made) {
    made.error().exit_code = ExitCode::kRankFailure;
    return made;
  }
  return MakeOwnFolder(part);
}

/// Makes the folder and writes in it. A rank whose shard has failed takes an empty folder along: it is
/// then made again, and the failure that counts is the other's, not that the folder is gone.
template <class Write>
std::invoke_result_t<Write> WriteInFolder(const CheckpointFolder& folder, const std::string& part,
                                          const Write& write) {
  constexpr int kMostTimes = 100;  // far more than happens
  for (int times = 1;; ++times) {
    auto made = MakePartFolder(folder, part);
    std::invoke_result_t<Write> written =
        made ? write() : std::invoke_result_t<Write>(tl::unexpected(made.error()));
    if (written || written.error().system_error != ENOENT || times == kMostTimes) return written;
  }
}

void RemoveFiles(const std::string& part, std::size_t number) {
  for (const char* extension : {".bin.tmp", ".bin", ".json"})
    ::unlink((part + "/" + ShardName(number) + extension).c_str());
}

/// Reads the shards' indices and checks them against each other and the model.
Result<std::vector<ManifestShard>> CollectShards(const std::string& part, std::int64_t step,
                                                 const CheckpointOwner& owner, std::size_t shards) {
  std::vector<ManifestShard> list;
  std::vector<ShardIndex> indices;
  for (std::size_t shard = 0; shard < shards; ++shard) {
    const std::string stem = part + "/" + ShardName(shard);
    auto text = ReadCheckpointText(stem + ".json");
    if (!text) return tl::unexpected(text.error());
    auto index = ParseIndex(*text, stem + ".json");
    if (!index) return tl::unexpected(index.error());
    if (index->step != step)
      return FailAt(stem + ".json", fmt::format("is of step {}, not of {}", index->step, step));
    auto bytes = SizeOfFile(stem + ".bin");
    if (!bytes) return tl::unexpected(bytes.error());
    if (*bytes != index->Bytes()) {
      return FailAt(stem + ".bin",
                    fmt::format("{} bytes, its index says {}", *bytes, index->Bytes()));
    }
    list.push_back({*bytes, HashOf(*text)});
    indices.push_back(std::move(*index));
  }
  auto covered = CheckCoverage(owner.parameters, indices);
  if (!covered) return FailIn(part, covered.error());
  return list;
}

/// Frees a name by giving what has it another one.
Result<void> SetAside(const std::string& path) {
  struct stat info {};
  if (::lstat(path.c_str(), &info) != 0) {
    if (errno == ENOENT) return {};
    return FailErrno(path);
  }
  std::string aside;
  for (int i = 0; aside.empty() || ::lstat(aside.c_str(), &info) == 0; ++i)
    aside = fmt::format("{}.aside-{}", path, i);
  if (std::rename(path.c_str(), aside.c_str()) != 0) return FailErrno(path);
  return {};
}

}  // namespace

Result<void> WriteShard(const CheckpointFolder& folder, std::uint64_t attempt, std::size_t number,
                        ShardIndex index, std::span<const std::byte> bytes,
                        const std::function<bool()>& stop) {
  const std::string part = folder.PartPathOf(index.step, attempt);
  const std::string stem = part + "/" + ShardName(number);
  auto hashes =
      WriteInFolder(folder, part, [&] { return WriteBlocks(stem + ".bin", bytes, stop); });
  Result<void> done;
  if (hashes) {
    index.block_hashes = std::move(*hashes);
    done = WriteCheckpointText(stem + ".json", IndexText(index));
  } else {
    done = tl::unexpected(hashes.error());
  }
  if (!done) RemoveShard(folder, attempt, index.step, number);
  return done;
}

void RemoveShard(const CheckpointFolder& folder, std::uint64_t attempt, std::int64_t step,
                 std::size_t number) {
  const std::string part = folder.PartPathOf(step, attempt);
  if (!IsOwnFolder(part)) return;
  RemoveFiles(part, number);
  // Fails as long as another rank's shard is in it; the last one takes the folder along.
  ::rmdir(part.c_str());
}

Result<void> CommitShards(const CheckpointFolder& folder, std::uint64_t attempt,
                          const CheckpointStep& at, const CheckpointOwner& owner,
                          std::size_t shards) {
  const std::string part = folder.PartPathOf(at.step, attempt);
  auto list = CollectShards(part, at.step, owner, shards);
  if (!list) return tl::unexpected(list.error());
  auto manifest = ManifestText({at, owner.parameters, std::move(*list)});
  if (!manifest) return tl::unexpected(manifest.error());
  auto done = WriteCheckpointText(part + "/manifest.json", *manifest);
  if (done) done = WriteCheckpointText(part + "/DONE", DoneText(*manifest));
  if (done) done = SetAside(folder.PathOf(at.step));
  if (!done) return done;
  if (std::rename(part.c_str(), folder.PathOf(at.step).c_str()) != 0) return FailErrno(part);
  return SyncFolder(folder.path());
}

}  // namespace adaptive_train
