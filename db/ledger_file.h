// RUN/ledger.jsonl: what a run would have stored, where its store was in trouble.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "core/result.h"
#include "db/ledger_entry.h"

namespace adaptive_train {

/// Appends the entries of one run to a ledger. Nothing is on the disk before the first entry, and
/// before Open. One thread; blocks as file writes do. Errors: ExitCode::kStore, one line that
/// names the file; a line is in the file as a whole or not at all.
class LedgerFile {
 public:
  /// `job` has a uid.
  explicit LedgerFile(JobRecord job) : job_(std::move(job)) {}
  LedgerFile(LedgerFile&& other) noexcept;
  LedgerFile& operator=(LedgerFile&&) = delete;
  ~LedgerFile();

  /// Names the file, in a folder that exists, and writes the entries that were waiting for it.
  Result<void> Open(const std::filesystem::path& path);
  Result<void> Append(LedgerEntry entry);
  /// Waits until all is on the disk.
  Result<void> Sync();
  /// True if the file holds an entry.
  bool Written() const { return begun_; }

 private:
  Result<void> Write();
  Result<void> WriteLine(const std::string& line);

  JobRecord job_;
  std::filesystem::path path_;
  std::vector<LedgerEntry> waiting_;
  std::int64_t written_ = 0;  // entries
  int descriptor_ = -1;
  bool begun_ = false;  // the run's first line is written
};

/// A ledger read back: each run that began in it, in the order of the file.
struct LedgerContent {
  std::vector<RunLedger> runs;
  std::vector<std::string> notes;  // lines that were left out, and why
};

/// Reads untrusted text. Lines that cannot be read are left out and told in the notes: the last one
/// is torn where the launcher was killed while writing it.
Result<LedgerContent> ReadLedger(const std::filesystem::path& path);

}  // namespace adaptive_train
