// What a run records after its start: the content of a store's rows and a ledger's lines.
#pragma once

#include <string>
#include <variant>
#include <vector>

#include "core/profile.h"
#include "db/records.h"

namespace adaptive_train {

/// Measurements of links, devices and layers from a run.
struct MeasuredRecord {
  std::string cluster;
  Profile profile;
};

using LedgerEntry = std::variant<std::vector<NodeRecord>, PlanRecord, LaunchRecord, FailureRecord,
                                 MeasuredRecord, SummaryRecord, JobEnd>;

/// An entry with its number within its run, from 1, wherever it is kept.
struct NumberedEntry {
  std::int64_t number = 0;
  LedgerEntry entry;
};

/// One run as read from a ledger.
struct RunLedger {
  JobRecord job;  // uid and launcher are set
  std::vector<NumberedEntry> entries;

  bool Ended() const {
    return !entries.empty() && std::holds_alternative<JobEnd>(entries.back().entry);
  }
};

}  // namespace adaptive_train
