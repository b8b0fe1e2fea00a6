// The lines of ledger.jsonl (docs/formats.md).
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "core/result.h"
#include "db/ledger_entry.h"

namespace adaptive_train {

/// The first line of a run, number 0, without a line end. Invalid UTF-8 becomes U+FFFD; non-finite
/// numbers become null.
std::string LedgerLine(const JobRecord& job);
/// A later line of the run `uid`.
std::string LedgerLine(const std::string& uid, const NumberedEntry& entry);

/// A parsed line.
struct ReadLine {
  std::string uid;
  std::variant<JobRecord, NumberedEntry> content;
};

/// Reads untrusted text. Fails in one line.
Result<ReadLine> ReadLedgerLine(std::string_view line);

}  // namespace adaptive_train
