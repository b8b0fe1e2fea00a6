// The words that the store's records use for states and outcomes.
#include "db/records.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <random>

namespace adaptive_train {
namespace {

struct StateName {
  JobState state;
  std::string_view name;
  std::string_view short_name;
};

constexpr std::array kStateNames = {
    StateName{JobState::kRunning, "RUNNING", "R"},
    StateName{JobState::kCompleted, "COMPLETED", "CD"},
    StateName{JobState::kFailed, "FAILED", "F"},
    StateName{JobState::kCancelled, "CANCELLED", "CA"},
    StateName{JobState::kTimeout, "TIMEOUT", "TO"},
    StateName{JobState::kNodeFail, "NODE_FAIL", "NF"},
    StateName{JobState::kOutOfMemory, "OUT_OF_MEMORY", "OOM"},
    StateName{JobState::kPreempted, "PREEMPTED", "PR"},
    StateName{JobState::kRequeued, "REQUEUED", "RQ"},
    StateName{JobState::kLost, "LOST", "LO"},
};

constexpr std::array kOutcomeNames = {std::string_view("ok"), std::string_view("retried"),
                                      std::string_view("failed")};

}  // namespace

const std::vector<JobState>& AllJobStates() {
  static const std::vector<JobState> kAll = [] {
    std::vector<JobState> all;
    all.reserve(std::size(kStateNames));
    for (const StateName& entry : kStateNames) all.push_back(entry.state);
    return all;
  }();
  return kAll;
}

std::string_view ToString(JobState state) {
  return kStateNames[static_cast<std::size_t>(state)].name;
}

std::string_view ShortName(JobState state) {
  return kStateNames[static_cast<std::size_t>(state)].short_name;
}

std::optional<JobState> JobStateFromString(std::string_view name) {
  std::string upper(name);
  std::transform(upper.begin(), upper.end(), upper.begin(),
                 [](unsigned char c) { return std::toupper(c); });
  for (const StateName& entry : kStateNames) {
    if (upper == entry.name || upper == entry.short_name) return entry.state;
  }
  return std::nullopt;
}

std::string_view ToString(LaunchOutcome outcome) {
  return kOutcomeNames[static_cast<std::size_t>(outcome)];
}

std::optional<LaunchOutcome> LaunchOutcomeFromString(std::string_view name) {
  const auto found = std::find(kOutcomeNames.begin(), kOutcomeNames.end(), name);
  if (found == kOutcomeNames.end()) return std::nullopt;
  return static_cast<LaunchOutcome>(found - kOutcomeNames.begin());
}

std::string ShownJobId(const JobRow& row) {
  const JobRecord& job = row.job;
  if (job.array_job_id && job.array_task_id)
    return fmt::format("{}_{}", *job.array_job_id, *job.array_task_id);
  return job.slurm_job_id > 0 ? std::to_string(job.slurm_job_id) : fmt::format("L{}", row.id);
}

std::string NewRunUid() {
  std::random_device device;
  std::string uid;
  for (int i = 0; i < 4; ++i) uid += fmt::format("{:08x}", device());
  return uid;
}

bool IsRunUid(const std::string& text) {
  return text.size() == 32 && std::all_of(text.begin(), text.end(),
                                          [](unsigned char c) { return std::isxdigit(c) != 0; });
}

}  // namespace adaptive_train
