// How long adaptive-traind keeps jobs.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>

namespace SQLite {
class Database;
}

namespace adaptive_train {

/// As slurmdbd's PurgeJobAfter. Without an age, jobs are kept for ever.
struct Retention {
  /// Counts from a job's end, or from its start where no end is known.
  std::optional<std::chrono::days> jobs;
  /// So many are removed at a time, with a pause after them: no request waits long.
  std::int64_t jobs_at_once = 50;
  std::chrono::milliseconds pause{200};
  /// From when no job was old enough to the next look.
  std::chrono::milliseconds period{std::chrono::hours(1)};
};

/// Removes the oldest jobs that ended before `before` (seconds since 1970), at most `limit`, with
/// all that belongs to them: nodes, plans, launches, failures, summaries. Returns how many. Throws
/// SQLite::Exception.
std::int64_t PurgeJobs(SQLite::Database& database, double before, std::int64_t limit);

}  // namespace adaptive_train
