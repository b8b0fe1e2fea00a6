// Files and folders of a checkpoint in the file system: written to last, read with their hashes
// checked, removed without following links.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "core/result.h"

namespace adaptive_train {

/// "PATH: why", with the exit code of a rank that failed.
tl::unexpected<Error> FailAt(const std::string& path, const std::string& why, int system_error = 0);
/// "PATH: what errno says", and errno.
tl::unexpected<Error> FailErrno(const std::string& path);

/// core's ReadFile and WriteFile with that exit code.
Result<std::string> ReadCheckpointText(const std::string& path);
Result<void> WriteCheckpointText(const std::string& path, std::string_view text);

/// Writes `bytes` to a new temporary file beside `path` in blocks of kCheckpointBlockBytes, hashes
/// each, syncs, renames it over `path` and syncs the folder. After each block it asks `stop`. Gives
/// the hashes. On failure the temporary file is removed. Blocks. Cheapest where `bytes` begin at a
/// multiple of the page size.
Result<std::vector<std::uint64_t>> WriteBlocks(const std::string& path,
                                               std::span<const std::byte> bytes,
                                               const std::function<bool()>& stop);

/// Makes renames in a folder last. Network file systems that cannot sync a folder are forgiven.
Result<void> SyncFolder(const std::string& path);

/// Makes one folder; fine if it is there already as a folder, not as a link to one.
Result<void> MakeOwnFolder(const std::string& path);

/// True for a folder that is no symbolic link.
bool IsOwnFolder(const std::string& path);

/// Removes a folder of plain files. Links in it are removed, not followed; a folder in it is not
/// ours and makes this fail.
Result<void> RemoveFlatFolder(const std::string& path);

/// Names in a folder, sorted. A folder that is not there has none.
Result<std::vector<std::string>> NamesIn(const std::string& path);

/// Size of a regular file that is no link.
Result<std::int64_t> SizeOfFile(const std::string& path);

/// A file whose blocks are read and checked against their hashes.
class BlockReader {
 public:
  /// The file must be regular and of `bytes` bytes. `hashes` has one per block and must outlive
  /// the reader.
  static Result<BlockReader> Open(const std::string& path, std::int64_t bytes,
                                  std::span<const std::uint64_t> hashes);
  ~BlockReader();
  BlockReader(BlockReader&& other) noexcept;
  BlockReader& operator=(BlockReader&&) = delete;

  std::size_t blocks() const { return hashes_.size(); }
  /// The content of a block, valid until the next call.
  Result<std::span<const std::byte>> Read(std::size_t block);

 private:
  BlockReader(std::string path, int fd, std::int64_t bytes, std::span<const std::uint64_t> hashes);

  std::string path_;
  int fd_;
  std::int64_t bytes_;
  std::span<const std::uint64_t> hashes_;
  std::vector<std::byte> block_;
};

}  // namespace adaptive_train
