// Writes files of the run folder away from the thread that listens to the ranks.
#pragma once

#include <chrono>
#include <mutex>
#include <optional>
#include <string>

#include "core/result.h"
#include "launcher/run/background_writer.h"
#include "launcher/run/run_folder.h"

namespace adaptive_train {

/// Replaces files that describe a run, in order. All members from one thread; only Finish waits for
/// the file system.
class FolderWriter {
 public:
  /// `folder` must outlive the writer.
  explicit FolderWriter(const RunFolder& folder) : folder_(folder) {}

  void Write(std::string name, std::string text);
  /// The last failure since the previous call.
  std::optional<Error> TakeFailure();
  /// Waits for all writes, for at most `deadline`. Returns the missed deadline.
  Result<void> Finish(std::chrono::milliseconds deadline) { return writer_.Finish(deadline); }

 private:
  const RunFolder& folder_;
  std::mutex mutex_;
  std::optional<Error> failure_;  // guarded by mutex_
  BackgroundWriter writer_;       // last: its thread ends before its data
};

}  // namespace adaptive_train
