// The folder in which a local step's PMIx server keeps its files, below the temporary folder.
#pragma once

#include <sys/types.h>

#include <string>

#include "core/result.h"

namespace adaptive_train {

/// A folder of this process alone, 0700. Its lock (flock) says that the process lives: who is killed
/// leaves the folder behind without one. One thread.
class StepFolder {
 public:
  /// Makes one, and removes those that other processes of this user left behind. Fails with
  /// kPreflight in one line.
  static Result<StepFolder> Make();

  StepFolder(StepFolder&& other) noexcept;
  StepFolder& operator=(StepFolder&&) = delete;
  /// Removes the folder.
  ~StepFolder();

  const std::string& Path() const { return path_; }

 private:
  StepFolder(std::string path, int lock) : path_(std::move(path)), lock_(lock) {}

  std::string path_;
  int lock_;  // the folder's descriptor
};

/// Removes from `temporary` what StepFolder made for `user` and no process holds any more. Follows no
/// link and touches no other name.
void RemoveLeftSteps(const std::string& temporary, ::uid_t user);

}  // namespace adaptive_train
