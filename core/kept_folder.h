// The folders in shared memory in which the ranks of a run keep their state.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <string>
#include <string_view>

#include "core/result.h"

namespace adaptive_train {

/// Where the folders are. Files there are memory, and outlive the processes that wrote them.
inline constexpr char kKeptRoot[] = "/dev/shm";

/// The beginning of the names of a job's folders on a node: "adaptive-train.1000.42.n1."; on any
/// node where `node` is empty. `job` is Slurm's number of the job, or "0".
std::string KeptFolderPrefix(uid_t user, std::string_view job, std::string_view node);

/// Removes the folders below `root` whose names begin with `prefix` and that belong to `owner`, with
/// the files in them. Links are removed or left, never followed; whatever belongs to others is left.
/// Fails, after all are done, with the first that could not be removed. Blocks.
Result<void> RemoveKeptFolders(const std::string& root, std::string_view prefix, uid_t owner);

/// Removes the caller's own folders below `root` that no process holds (KeptFolder) and in which
/// nothing has changed for `age`: what runs that were killed have left. Blocks.
Result<void> RemoveStaleKeptFolders(const std::string& root, std::chrono::seconds age);

/// A folder that is held: as long as this object is there, it is not stale. The folder stays.
class KeptFolder {
 public:
  /// Makes ROOT/NAME for the caller alone (mode 0700) if it is not there. Refuses one that others
  /// could have made. Blocks.
  static Result<KeptFolder> Hold(const std::string& root, const std::string& name);
  ~KeptFolder();
  KeptFolder(KeptFolder&& other) noexcept;
  KeptFolder& operator=(KeptFolder&&) = delete;

  const std::string& path() const { return path_; }
  /// Removes the folder if nothing is in it.
  void RemoveIfEmpty() const;

 private:
  KeptFolder(std::string path, int descriptor);

  std::string path_;
  int descriptor_;
};

}  // namespace adaptive_train
