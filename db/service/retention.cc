// How long adaptive-traind keeps what it was told.
#include "db/service/retention.h"

#include "db/database.h"

namespace adaptive_train {
namespace {

/// A job starts before it ends, so that the index by start finds all that can be old enough.
constexpr const char* kPurgeJobs =
    "DELETE FROM jobs WHERE id IN (SELECT id FROM jobs WHERE start_time < ?1 "
    "AND COALESCE(end_time, start_time) < ?1 ORDER BY start_time LIMIT ?2)";

/// Of no job that is left.
constexpr const char* kPurgeSnapshots =
    "DELETE FROM snapshots WHERE hash IN (SELECT hash FROM snapshots"
    "  WHERE NOT EXISTS (SELECT 1 FROM nodes WHERE snapshot_hash = hash) LIMIT ?1)";
constexpr const char* kPurgePresence =
    "DELETE FROM presence WHERE (cluster, node, owner) IN"
    " (SELECT cluster, node, owner FROM presence WHERE until < ?1 ORDER BY until LIMIT ?2)";

constexpr const char* kPurgeFailures =
    "DELETE FROM failures WHERE id IN"
    " (SELECT id FROM failures INDEXED BY failures_without_job WHERE job_id IS NULL AND time < ?1 "
    "ORDER BY time LIMIT ?2)";
constexpr const char* kPurgeOutages =
    "DELETE FROM outages WHERE (cluster, node, time) IN"
    " (SELECT cluster, node, time FROM outages WHERE time < ?1 LIMIT ?2)";

constexpr const char* kPurgeLinks =
    "DELETE FROM link_profiles WHERE (cluster, from_node, to_node, owner) IN"
    " (SELECT cluster, from_node, to_node, owner FROM link_profiles"
    "   WHERE measured_at < ?1 ORDER BY measured_at LIMIT ?2)";
constexpr const char* kPurgeDevices =
    "DELETE FROM device_profiles WHERE (cluster, device_kind, node, owner) IN"
    " (SELECT cluster, device_kind, node, owner FROM device_profiles"
    "   WHERE measured_at < ?1 ORDER BY measured_at LIMIT ?2)";
constexpr const char* kPurgeLayers =
    "DELETE FROM layer_profiles WHERE (owner, device_kind, model, layer, micro_batch) IN"
    " (SELECT owner, device_kind, model, layer, micro_batch FROM layer_profiles"
    "   WHERE measured_at < ?1 ORDER BY measured_at LIMIT ?2)";

std::int64_t Purge(Database& database, const char* statement, double before, std::int64_t limit) {
  Statement purge(database, statement);
  return purge.Bind(before, limit).Run();
}

}  // namespace

std::int64_t PurgeJobs(Database& database, double before, std::int64_t limit) {
  const std::int64_t jobs = Purge(database, kPurgeJobs, before, limit);
  Statement snapshots(database, kPurgeSnapshots);
  snapshots.Bind(limit).Run();
  return jobs;
}

std::int64_t PurgeFigures(Database& database, double before, std::int64_t limit) {
  std::int64_t removed = 0;
  for (const char* const statement : {kPurgeLinks, kPurgeDevices, kPurgeLayers})
    removed += Purge(database, statement, before, limit);
  return removed;
}

std::int64_t PurgePresence(Database& database, double before, std::int64_t limit) {
  return Purge(database, kPurgePresence, before, limit);
}

std::int64_t PurgeFailures(Database& database, double before, std::int64_t limit) {
  return Purge(database, kPurgeFailures, before, limit) +
         Purge(database, kPurgeOutages, before, limit);
}

}  // namespace adaptive_train
