// adaptive-train jobs: lists past and running jobs from the profile store, following sacct's
// conventions.
#include "launcher/commands/jobs.h"

#include <fmt/format.h>
#include <pwd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstdio>
#include <cstring>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/seconds.h"
#include "core/settings.h"
#include "db/known_store.h"
#include "launcher/commands/job_key.h"
#include "launcher/commands/outcome.h"
#include "launcher/commands/store_notes.h"
#include "launcher/report/job_table.h"
#include "launcher/report/job_time.h"
#include "launcher/run/job_endings.h"

namespace adaptive_train {
namespace {

constexpr const char* kJobsFooter =
    R"(Jobs of yours that ran since midnight, unless -j, -u, -a, -S or -E say otherwise.
A job is in the time from -S to -E if it ran at any moment of it. -s looks at the state a job has
now: RUNNING (R), COMPLETED (CD), FAILED (F), CANCELLED (CA), TIMEOUT (TO), NODE_FAIL (NF),
OUT_OF_MEMORY (OOM), PREEMPTED (PR), REQUEUED (RQ), LOST (LO: its launcher ended without saying so).
Slurm is asked once how a job ended that says RUNNING and is not, or that a signal has stopped.
Times: YYYY-MM-DD[THH:MM[:SS]], MM/DD[/YY][-HH:MM[:SS]], HH:MM[:SS], today, noon, now-2days.
Tasks of an array have ids such as 1230_4, local runs without Slurm such as L12.

Examples:
  adaptive-train jobs
  adaptive-train jobs -j 1234,L12
  adaptive-train jobs -j 1230_4 -o JobID,State,ExitCode,Reason%100
  adaptive-train jobs -a -S now-7days -s F,NF -o JobID,User,State,ExitCode,NodeList%40
  adaptive-train jobs --newest 20
  adaptive-train jobs -S 2026-01-01 -n -P -o JobID,ValLoss
  adaptive-train jobs -j 1234 --json

Exit codes: 0 done (also when there are no such jobs), 2 usage, 6 the store that --store
names is unusable.)";

/// The command line as typed.
struct JobsArguments {
  std::vector<std::string> jobs, users, states;
  std::string start, end, format, store;
  std::optional<std::int64_t> newest;
  bool all_users = false, no_header = false, parsable = false, parsable2 = false, json = false,
       help_format = false;
};

/// The parsed command line.
struct Request {
  StoreChoice store;
  JobQuery query;
  std::vector<JobState> states;  // as shown; empty: all
  std::vector<JobColumn> columns;
  JobTableStyle style = JobTableStyle::kAligned;
};

/// Splits each text at its commas. Refuses empty words.
Result<std::vector<std::string>> Words(const std::vector<std::string>& texts, const char* option) {
  std::vector<std::string> words;
  for (const std::string& text : texts) {
    for (std::size_t begin = 0; begin <= text.size();) {
      const std::size_t end = std::min(text.find(',', begin), text.size());
      if (begin == end)
        return Fail(fmt::format("{}: '{}' has an empty word: give words with commas between them",
                                option, text));
      words.push_back(text.substr(begin, end - begin));
      begin = end + 1;
    }
  }
  return words;
}

Result<JobState> ParseState(const std::string& word) {
  if (const auto state = JobStateFromString(word)) return *state;
  std::string known;
  for (const JobState state : AllJobStates())
    known += fmt::format(" {} ({})", ToString(state), ShortName(state));
  return Fail(
      fmt::format("--state: there is no state '{}': allowed are{}", word.substr(0, 40), known));
}

std::string UserName(const std::string& name_or_number) {
  uid_t uid = 0;
  const char* end = name_or_number.data() + name_or_number.size();
  const auto [stop, error] = std::from_chars(name_or_number.data(), end, uid);
  if (error != std::errc() || stop != end) return name_or_number;
  const passwd* entry = getpwuid(uid);
  return entry == nullptr ? name_or_number : entry->pw_name;
}

template <class T, class Parse>
Result<std::vector<T>> ParseList(const std::vector<std::string>& texts, const char* option,
                                 const Parse& parse) {
  const auto words = Words(texts, option);
  if (!words) return tl::unexpected(words.error());
  std::vector<T> values;
  for (const std::string& word : *words) {
    Result<T> value = parse(word);
    if (!value) return tl::unexpected(value.error());
    values.push_back(std::move(*value));
  }
  return values;
}

Result<std::optional<double>> ParseTime(const std::string& text, const char* option, double now) {
  if (text.empty()) return std::nullopt;
  const auto time = ParseJobTime(text, now);
  if (!time) return FailIn(option, time.error());
  return *time;
}

/// sacct's window: from midnight on, or all times if jobs, or a number of them, are named.
Result<void> ParseWindow(const JobsArguments& arguments, double now, JobQuery& query) {
  const auto start = ParseTime(arguments.start, "--starttime", now);
  if (!start) return tl::unexpected(start.error());
  const auto end = ParseTime(arguments.end, "--endtime", now);
  if (!end) return tl::unexpected(end.error());
  query.start = *start;
  query.end = *end;
  query.newest = arguments.newest;
  if (!query.start && query.ids.empty() && !query.newest) query.start = Midnight(now);
  if (query.start && query.end && *query.start > *query.end) {
    return Fail(fmt::format("--endtime: {} lies before --starttime {}: give a later one",
                            ShownTime(*query.end), ShownTime(*query.start)));
  }
  return {};
}

/// sacct's selection: the caller's own jobs, or anybody's if jobs are named.
Result<void> ParseUsers(const JobsArguments& arguments, JobQuery& query) {
  auto users = ParseList<std::string>(
      arguments.users, "--user",
      [](const std::string& word) -> Result<std::string> { return UserName(word); });
  if (!users) return tl::unexpected(users.error());
  query.users = std::move(*users);
  query.all_users = arguments.all_users || (query.users.empty() && !query.ids.empty());
  if (!query.all_users && query.users.empty()) query.users = {CallingUser()};
  return {};
}

Result<void> ParseStates(const JobsArguments& arguments, Request& request) {
  auto states = ParseList<JobState>(arguments.states, "--state", ParseState);
  if (!states) return tl::unexpected(states.error());
  request.states = *states;
  request.query.states = *states;
  // How rows are stored whose end has not been found out.
  if (!states->empty())
    request.query.states.insert(request.query.states.end(),
                                {JobState::kRunning, JobState::kCancelled});
  return {};
}

Result<Request> Understand(const JobsArguments& arguments, double now) {
  Request request;
  const auto settings = LoadSettings();
  if (!settings) return tl::unexpected(settings.error());
  request.store = ChooseStore(arguments.store, *settings);
  auto ids = ParseList<JobKey>(arguments.jobs, "--jobs", [](const std::string& word) {
    auto key = ParseJobKey(word);
    return key ? key : FailIn("--jobs", key.error());
  });
  if (!ids) return tl::unexpected(ids.error());
  request.query.ids = std::move(*ids);
  auto columns = ParseJobFormat(arguments.format);
  if (!columns) return tl::unexpected(columns.error());
  request.columns = std::move(*columns);
  if (arguments.parsable) request.style = JobTableStyle::kParsable;
  if (arguments.parsable2) request.style = JobTableStyle::kParsable2;
  return ParseWindow(arguments, now, request.query)
      .and_then([&] { return ParseUsers(arguments, request.query); })
      .and_then([&] { return ParseStates(arguments, request); })
      .map([&] { return request; });
}

/// A row that never ended is in every later window. Once it is known to be lost, only its start
/// counts.
bool IsWanted(const ListedJob& job, const Request& request) {
  const auto& states = request.states;
  if (!states.empty() && std::find(states.begin(), states.end(), job.state) == states.end())
    return false;
  return job.state != JobState::kLost || job.row.job.start_time >= request.query.start.value_or(0);
}

Result<std::vector<ListedJob>> List(ProfileStore& store, const Request& request,
                                    bool with_details) {
  auto rows = store.FindJobs(request.query);
  if (!rows) return tl::unexpected(rows.error());
  FindOutEndings(store, *rows, EpochSecondsNow());
  std::vector<ListedJob> jobs;
  for (JobRow& row : *rows) {
    const JobState state = row.state;
    ListedJob job{std::move(row), state, {}, {}};
    if (!IsWanted(job, request)) continue;
    if (with_details) {
      auto failures = store.FailuresOf(job.row.id);
      if (!failures) return tl::unexpected(failures.error());
      auto launches = store.LaunchesOf(job.row.id);
      if (!launches) return tl::unexpected(launches.error());
      job.failures = std::move(*failures);
      job.launches = std::move(*launches);
    }
    jobs.push_back(std::move(job));
  }
  return jobs;
}

/// What the store has, or with a warning what can be shown without the default one.
Result<std::vector<ListedJob>> ListKnown(const Request& request, bool with_details) {
  auto known = ReadKnownStore(request.store);
  if (!known) return tl::unexpected(known.error());
  TellNotes(*known, "jobs");
  auto jobs = List(*known->store, request, with_details);
  if (jobs || request.store.required) return jobs;
  TellTrouble(jobs.error(), "jobs");
  return std::vector<ListedJob>{};
}

int RunJobsCommand(const JobsArguments& arguments) {
  if (arguments.help_format) return PrintText("jobs", JobFieldList());
  const double now = EpochSecondsNow();
  const auto request = Understand(arguments, now);
  if (!request) return ReportError("jobs", request.error());
  const auto jobs = ListKnown(*request, arguments.json);
  if (!jobs) return ReportError("jobs", jobs.error());
  if (arguments.json) return PrintText("jobs", RenderJobsJson(*jobs, now));
  return PrintText(
      "jobs", RenderJobTable(*jobs, request->columns, request->style, !arguments.no_header, now));
}

}  // namespace

void AddJobsCommand(CLI::App& app, std::function<int()>& chosen) {
  auto arguments = std::make_shared<JobsArguments>();
  JobsArguments& a = *arguments;
  CLI::App* jobs = app.add_subcommand("jobs", "List past and running jobs, with sacct's habits");
  const auto list = [&](const char* names, std::vector<std::string>& values, const char* help) {
    return jobs->add_option(names, values, help)->allow_extra_args(false)->type_name("LIST");
  };
  list("-j,--jobs", a.jobs, "These jobs, whoever's and whenever");
  CLI::Option* users = list("-u,--user,--uid", a.users, "Jobs of these users");
  jobs->add_flag("-a,--allusers", a.all_users, "Jobs of all users")->excludes(users);
  jobs->add_option("-S,--starttime", a.start, "Jobs that ran at this time or later")
      ->type_name("TIME");
  jobs->add_option("-E,--endtime", a.end, "Jobs that ran at this time or before")
      ->type_name("TIME");
  list("-s,--state", a.states, "Jobs in these states");
  jobs->add_option("--newest", a.newest, "The last N of them to begin, of all times")
      ->check(CLI::Range(std::int64_t{1}, std::int64_t{1'000'000}))
      ->type_name("N");
  jobs->add_option("-o,--format", a.format, "The columns to show")
      ->type_name("FIELD[%[-]WIDTH],...");
  jobs->add_flag("-e,--helpformat", a.help_format, "List the fields that --format knows");
  jobs->add_flag("-n,--noheader", a.no_header, "No header");
  CLI::Option* parsable =
      jobs->add_flag("-p,--parsable", a.parsable, "Fields in full, '|' behind each");
  jobs->add_flag("-P,--parsable2", a.parsable2, "Fields in full, '|' between them")
      ->excludes(parsable);
  jobs->add_flag("--json", a.json, "JSON; other formatting is ignored");
  jobs->add_option("--store", a.store,
                   "The profile store [~/.local/state/adaptive-train/profiles.db]")
      ->type_name("file:PATH|unix:PATH|tcp:HOST:PORT");
  jobs->footer(kJobsFooter);
  jobs->callback(
      [arguments, &chosen] { chosen = [arguments] { return RunJobsCommand(*arguments); }; });
}

}  // namespace adaptive_train
