// What a run records after its beginning: what a store's rows and a ledger's lines are made of.
#pragma once

#include <string>
#include <variant>
#include <vector>

#include "core/profile.h"
#include "db/records.h"

namespace adaptive_train {

/// Figures of links, devices and layers that a run measured.
struct MeasuredRecord {
  std::string cluster;
  Profile profile;
};

using LedgerEntry = std::variant<std::vector<NodeRecord>, PlanRecord, LaunchRecord, FailureRecord,
                                 MeasuredRecord, SummaryRecord, JobEnd>;

/// An entry and its place among those of its run, from 1.
struct NumberedEntry {
  std::int64_t number = 0;
  LedgerEntry entry;
};

/// One run as a ledger tells it.
struct RunLedger {
  JobRecord job;  // uid and launcher are set
  std::vector<NumberedEntry> entries;

  bool Ended() const {
    return !entries.empty() && std::holds_alternative<JobEnd>(entries.back().entry);
  }
};

}  // namespace adaptive_train
