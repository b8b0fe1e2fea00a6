// How the rows of `adaptive-train jobs` look: fields, widths, sacct's table and parsable forms,
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

/// A job with all that is shown of it.
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
  bool left = false;  // text at the left side of the column
};

enum class JobTableStyle {
  kAligned,    // columns of fixed width; what does not fit ends in '+'
  kParsable,   // fields at full length, '|' behind each
  kParsable2,  // fields at full length, '|' between them
};

/// Takes "FIELD[%WIDTH],...", FIELD in any case or cut short where that is unambiguous, %-WIDTH for
/// left-aligned; the empty text means the default columns. Error: ExitCode::kUsage, naming the
/// nearest field.
Result<std::vector<JobColumn>> ParseJobFormat(std::string_view text);

/// All field names, four in a line.
std::string JobFieldList();

/// The table, each line ended. Control characters in stored texts become '?'. `now` (UTC, seconds
/// since 1970) is the end of what still runs.
std::string RenderJobTable(const std::vector<ListedJob>& jobs,
                           const std::vector<JobColumn>& columns, JobTableStyle style,
                           bool with_header, double now);

/// {"format_version": 1, "jobs": [...]}, one line end at its end. Times as UTC seconds since 1970;
/// null for unknown.
std::string RenderJobsJson(const std::vector<ListedJob>& jobs, double now);

/// From the start to the end of a job, or to `now` while it runs, in seconds; none for a lost one.
std::optional<double> ElapsedSeconds(const ListedJob& job, double now);

}  // namespace adaptive_train
