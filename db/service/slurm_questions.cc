#include "db/service/slurm_questions.h"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <cmath>
#include <optional>
#include <sstream>
#include <string_view>

#include "core/file_io.h"
#include "core/seconds.h"

namespace adaptive_train {
namespace {

/// Slurm marks a node as down some minutes after its death (SlurmdTimeout), and ranks have found
/// out before or a little later.
constexpr std::int64_t kMostBefore = 600, kMostAfter = 3600;  // seconds
constexpr std::size_t kLongestName = 64, kLongestAccount = 100;

/// A name as slurm.conf has it, and nothing that scontrol would take for an option or for several.
bool IsNodeName(const std::string& name) {
  const auto may_be = [](unsigned char c) {
    return std::isalnum(c) != 0 || c == '-' || c == '_' || c == '.';
  };
  return !name.empty() && name.size() <= kLongestName && name.front() != '-' &&
         name.front() != '.' && std::ranges::all_of(name, may_be);
}

void AddJob(const JobRecord& job, std::vector<SlurmQuestion>& questions) {
  if (job.slurm_job_id > 0) questions.push_back(JobQuestion{job.slurm_job_id, job.restart_count});
}

void AddFailure(const LedgerEntry& entry, std::vector<SlurmQuestion>& questions) {
  const auto* failure = std::get_if<FailureRecord>(&entry);
  if (failure == nullptr || failure->blamed != Blamed::kNode || !IsNodeName(failure->host)) return;
  // A node that is slow is up, and of what is long ago Slurm knows nothing.
  const double age = EpochSecondsNow() - failure->time;
  if (failure->kind == FailureKind::kSlow || !(std::abs(age) < kMostAfter)) return;
  questions.push_back(NodeQuestion{failure->host, static_cast<std::int64_t>(failure->time)});
}

std::optional<std::int64_t> NumberAt(std::string_view text) {
  std::int64_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  return error == std::errc() && end != text.data() ? std::optional(number) : std::nullopt;
}

/// None: the text is something else, or more.
template <class Number>
std::optional<Number> WholeNumber(std::string_view text) {
  Number number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  return error == std::errc() && end == text.data() + text.size() ? std::optional(number)
                                                                  : std::nullopt;
}

/// What follows " KEY=", up to the next blank. A reason, which is an administrator's free text,
/// comes after all keys.
std::string_view ValueOf(std::string_view words, std::string_view key) {
  const std::string begins = " " + std::string(key) + "=";
  const std::size_t at = words.find(begins);
  if (at == words.npos) return {};
  const std::string_view value = words.substr(at + begins.size());
  return value.substr(0, value.find(' '));
}

/// " Reason=Not responding [slurm@1795932564]", and what Slurm prints after it.
std::optional<std::int64_t> TimeOfReason(std::string_view text) {
  for (const std::string_view next : {"\n", " Comment=", " Extra="})
    text = text.substr(0, text.find(next));
  const std::size_t at = text.rfind('@');
  return at == text.npos ? std::nullopt : NumberAt(text.substr(at + 1));
}

/// What follows "JOB|" in lines that begin so.
std::vector<std::string> LinesOf(const std::string& lines, std::int64_t job) {
  const std::string begins = std::to_string(job) + "|";
  std::istringstream stream(lines);
  std::vector<std::string> found;
  for (std::string line; std::getline(stream, line);)
    if (line.starts_with(begins)) found.push_back(line.substr(begins.size()));
  return found;
}

Result<SlurmRun> RunFrom(const std::string& line) {
  std::vector<std::string> fields;
  std::istringstream stream(line + "|");
  for (std::string field; std::getline(stream, field, '|');) fields.push_back(field);
  const auto user = fields.size() == 5 ? WholeNumber<uid_t>(fields[0]) : std::nullopt;
  if (!user) return Fail("Slurm says of it " + Printable(line, 80), ExitCode::kStore);
  if (fields[4] == "None assigned") fields[4] = "";  // of sacct
  return SlurmRun{*user, WholeNumber<std::int64_t>(fields[1]), WholeNumber<std::int64_t>(fields[2]),
                  fields[3].starts_with("COMPLETING"), fields[4]};
}

}  // namespace

std::vector<SlurmQuestion> QuestionsIn(const StoreRequest& request) {
  std::vector<SlurmQuestion> questions;
  if (const auto* begin = std::get_if<store_request::BeginJob>(&request))
    AddJob(begin->job, questions);
  if (const auto* record = std::get_if<store_request::Record>(&request))
    AddFailure(record->entry.entry, questions);
  if (const auto* take = std::get_if<store_request::TakeIn>(&request)) {
    AddJob(take->run.job, questions);
    for (const NumberedEntry& entry : take->run.entries) AddFailure(entry.entry, questions);
  }
  return questions;
}

Result<std::vector<SlurmRun>> RunsIn(const std::string& lines, std::int64_t job) {
  std::vector<SlurmRun> runs;
  for (const std::string& line : LinesOf(lines, job)) {
    auto run = RunFrom(line);
    if (!run) return tl::unexpected(run.error());
    runs.push_back(std::move(*run));
  }
  return runs;
}

std::string AccountIn(const std::string& lines, std::int64_t job) {
  const auto found = LinesOf(lines, job);
  if (found.empty()) return "";
  const std::string account = Printable(found.front(), kLongestAccount);
  return account == "(null)" ? "" : account;  // of squeue
}

Result<EpochSeconds> OutageIn(std::string_view words, std::int64_t failed) {
  const std::size_t reason = words.find(" Reason=");
  const std::string_view keys = words.substr(0, reason);
  const std::string_view state = ValueOf(keys, "State");
  if (state.empty())
    return Fail("scontrol show node says " + Printable(std::string(words), 80), ExitCode::kStore);
  const auto is_of_it = [&](std::optional<std::int64_t> time, std::int64_t most_before) {
    return time && *time >= failed - most_before && *time <= failed + kMostAfter;
  };
  if (state.starts_with("DOWN") && reason != words.npos) {
    const auto since = TimeOfReason(words.substr(reason));
    if (is_of_it(since, kMostBefore)) return static_cast<EpochSeconds>(*since);
  }
  // A node that has just started is no node that failed.
  const auto booted = NumberAt(ValueOf(keys, "BootTime"));
  if (is_of_it(booted, 0)) return static_cast<EpochSeconds>(*booted);
  return Fail("Slurm knows of no outage at that time", ExitCode::kStore);
}

}  // namespace adaptive_train
