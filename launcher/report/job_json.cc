// The rows of `adaptive-train jobs` as JSON.
#include <nlohmann/json.hpp>

#include "core/format_version.h"
#include "db/record_json.h"
#include "launcher/report/job_table.h"

namespace adaptive_train {
namespace {

using Json = nlohmann::ordered_json;

template <class Record>
Json ListJson(const std::vector<Record>& records) {
  Json array = Json::array();
  for (const Record& record : records) array.push_back(ToRecordJson(record));
  return array;
}

Json JobJson(const ListedJob& listed, double now) {
  const JobRow& row = listed.row;
  const JobRecord& job = row.job;
  return {{"job_id", ShownJobId(row)},
          {"id", row.id},
          {"cluster", job.cluster},
          {"slurm_job_id", job.slurm_job_id},
          {"array_job_id", OrNull(job.array_job_id)},
          {"array_task_id", OrNull(job.array_task_id)},
          {"restart_count", job.restart_count},
          {"run_number", row.run_number},
          {"user", job.user},
          {"name", job.name},
          {"state", ToString(listed.state)},
          {"exit_code", OrNull(row.exit_code)},
          {"reason", row.reason},
          {"submit_time", job.submit_time},
          {"start_time", job.start_time},
          {"end_time", OrNull(row.end_time)},
          {"elapsed_s", OrNull(ElapsedSeconds(listed, now))},
          {"run_dir", job.run_dir},
          {"options", job.options},
          {"adaptive_train_version", job.adaptive_train_version},
          {"launcher",
           {{"host", job.launcher ? job.launcher->host : ""},
            {"pid", job.launcher ? job.launcher->pid : 0}}},
          {"ranks", row.ranks},
          {"nodes", row.nodes},
          {"summary", row.summary ? ToRecordJson(*row.summary) : Json(nullptr)},
          {"launch_retries", row.launch_retries},
          {"launches", ListJson(listed.launches)},
          {"failures", ListJson(listed.failures)}};
}

}  // namespace

std::string RenderJobsJson(const std::vector<ListedJob>& jobs, double now) {
  Json root = {{"format_version", kFormatVersion}, {"jobs", Json::array()}};
  for (const ListedJob& job : jobs) root["jobs"].push_back(JobJson(job, now));
  // Stored texts may not be UTF-8; invalid bytes are shown as U+FFFD.
  constexpr int kIndent = 2;
  return root.dump(kIndent, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace adaptive_train
