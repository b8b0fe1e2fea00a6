// Formats the rows of `adaptive-train jobs`: fields, widths, sacct's table and parsable forms,
// JSON.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/result.h"
#include "db/records.h"

namespace adaptive_train {

/// A job with everything shown about it.
struct ListedJob {
  JobRow row;
  JobState state = JobState::kRunning;  // as shown: kLost for a running row whose launcher is gone
  std::vector<FailureRecord> failures;  // for JSON only
  std::vector<LaunchRecord> launches;   // for JSON only
};

struct JobField;

/// One column of a table.
struct JobColumn {
  const JobField* field = nullptr;
  std::size_t width = 0;
  bool left = false;  // left-aligned text
};

enum class JobTableStyle {
  kAligned,    // columns of fixed width; cut-off text ends in '+'
  kParsable,   // fields in full, '|' after each
  kParsable2,  // fields in full, '|' between them
};

/// Parses "FIELD[%WIDTH],...". FIELD is in any case, and may be abbreviated if unambiguous; %-WIDTH
/// aligns left. The empty text means the default columns. Error: ExitCode::kUsage, naming the
/// nearest field.
Result<std::vector<JobColumn>> ParseJobFormat(std::string_view text);

/// All field names, four per line.
std::string JobFieldList();

/// The table, with a line end after each line. Control characters in stored texts become '?'. `now`
/// (UTC, seconds since 1970) is the end of running jobs.
std::string RenderJobTable(const std::vector<ListedJob>& jobs,
                           const std::vector<JobColumn>& columns, JobTableStyle style,
                           bool with_header, double now);

/// {"format_version": 1, "jobs": [...]} and a line end. Times are UTC seconds since 1970; null if
/// unknown.
std::string RenderJobsJson(const std::vector<ListedJob>& jobs, double now);

/// Seconds from a job's start to its end, or to `now` while it runs; none for a lost one.
std::optional<double> ElapsedSeconds(const ListedJob& job, double now);

}  // namespace adaptive_train
