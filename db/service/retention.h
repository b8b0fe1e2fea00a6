// How long adaptive-traind keeps what it was told.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>

namespace adaptive_train {

class Database;

/// As slurmdbd's PurgeJobAfter and its like. Without an age, rows are kept for ever.
struct Retention {
  /// Counts from a job's end, or from its start where no end is known.
  std::optional<std::chrono::days> jobs;
  /// Speeds of links, devices and layers; counts from when their user last measured them.
  std::optional<std::chrono::days> figures;
  /// Failures of nodes and links in jobs that are removed, and outages; counts from the failure.
  std::optional<std::chrono::days> failures;
  /// So many are removed at a time, with a pause after them: no request waits long. A job has
  /// many rows, the others one.
  std::int64_t jobs_at_once = 50, rows_at_once = 500;
  std::chrono::milliseconds pause{200};
  /// From when nothing was old enough to the next look.
  std::chrono::milliseconds period{std::chrono::hours(1)};

  bool Any() const { return jobs || figures || failures; }
};

/// Removes the oldest jobs that ended before `before` (seconds since 1970), at most `limit`, with
/// all that is private: nodes, plans, launches, summaries. Of failures that are blamed on a node or
/// a link, time, place and kind stay. Returns how many. Throws DatabaseError.
std::int64_t PurgeJobs(Database& database, double before, std::int64_t limit);

/// Removes the oldest figures that were last measured before `before`, at most `limit` each of
/// links, devices and layers. Returns how many. Throws DatabaseError.
std::int64_t PurgeFigures(Database& database, double before, std::int64_t limit);

/// Forgets users whose jobs ran on a node, if the last ended before `before`: what they reported
/// then counts by it, as long as it is kept. At most `limit`. Returns how many. Throws
/// DatabaseError.
std::int64_t PurgePresence(Database& database, double before, std::int64_t limit);

/// Removes the oldest failures of removed jobs, and outages, from before `before`, at most `limit`
/// each. Returns how many. Throws DatabaseError.
std::int64_t PurgeFailures(Database& database, double before, std::int64_t limit);

}  // namespace adaptive_train
