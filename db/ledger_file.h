// RUN/ledger.jsonl: what a run would have stored while its store could not be used.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "core/result.h"
#include "db/ledger_entry.h"

namespace adaptive_train {

/// Appends the entries of one run to a ledger. Nothing is written before Open and the first entry.
/// One thread; blocks as file writes do. Errors: ExitCode::kStore, one line that names the file. A
/// line is in the file completely or not at all.
class LedgerFile {
 public:
  /// `job` must have a uid.
  explicit LedgerFile(JobRecord job) : job_(std::move(job)) {}
  LedgerFile(const LedgerFile&) = delete;
  LedgerFile& operator=(const LedgerFile&) = delete;
  ~LedgerFile();

  /// Sets the file, in a folder that exists, and writes the entries that were waiting for it.
  Result<void> Open(const std::filesystem::path& path);
  Result<void> Append(NumberedEntry entry);
  /// Waits until everything is on disk.
  Result<void> Sync();
  /// True if the file holds an entry.
  bool Written() const { return begun_; }

 private:
  Result<void> Write();
  Result<void> WriteLine(const std::string& line);

  JobRecord job_;
  std::filesystem::path path_;
  std::vector<NumberedEntry> waiting_;
  int descriptor_ = -1;
  bool begun_ = false;  // the run's first line is written
};

/// The content of a ledger: each run that began in it, in file order.
struct LedgerContent {
  std::vector<RunLedger> runs;
  std::vector<std::string> notes;  // lines that were skipped, and why
};

/// Reads untrusted text. Unreadable lines are skipped and listed in the notes: the last line is cut
/// short if the launcher was killed while writing it.
Result<LedgerContent> ReadLedger(const std::filesystem::path& path);

}  // namespace adaptive_train
