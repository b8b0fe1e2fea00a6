// The store's records as JSON: in ledgers and in messages to adaptive-traind. For .cc files.
#pragma once

#include <concepts>
#include <limits>
#include <optional>
#include <string>

#include "core/json_reader.h"
#include "core/json_writer.h"
#include "db/ledger_entry.h"

namespace adaptive_train {

// Reads a member into `value`, of any length or size that its type holds.
inline void Take(const JsonReader& from, const char* key, std::string& value) {
  from.ReadAnyText(key, value);
}
inline void Take(const JsonReader& from, const char* key, bool& value) { from.Read(key, value); }
inline void Take(const JsonReader& from, const char* key, double& value) {
  from.ReadReal(key, value);
}
template <std::integral Integer>
void Take(const JsonReader& from, const char* key, Integer& value) {
  from.Read(key, value, std::numeric_limits<Integer>::min(), std::numeric_limits<Integer>::max());
}
/// None where the member is null.
template <class T>
void Take(const JsonReader& from, const char* key, std::optional<T>& value) {
  if (from.FindOptional(key) != nullptr) Take(from, key, value.emplace());
}

// What is read is untrusted; what is wrong stands in the reader's error. A job's uid is not among
// its members: documents name the run in their own way.
void WriteJson(std::string& to, const JobRecord& job);
JobRecord ReadJobRecord(const JsonReader& json);
void WriteJson(std::string& to, const LaunchRecord& launch);
LaunchRecord ReadLaunchRecord(const JsonReader& json);
void WriteJson(std::string& to, const FailureRecord& failure);
FailureRecord ReadFailureRecord(const JsonReader& json);
void WriteJson(std::string& to, const MeasuredRecord& measured);
MeasuredRecord ReadMeasuredRecord(const JsonReader& json);
void WriteJson(std::string& to, const SummaryRecord& summary);
SummaryRecord ReadSummaryRecord(const JsonReader& json);

/// Adds the entry as one member, whose name tells its kind: "nodes", "plan", "launch", "failure",
/// "measured", "summary" or "end".
void AddEntry(JsonObject& to, const LedgerEntry& entry);
LedgerEntry ReadEntry(const JsonReader& json);

}  // namespace adaptive_train
