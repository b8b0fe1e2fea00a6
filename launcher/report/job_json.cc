// The rows of `adaptive-train jobs` as JSON.
#include "core/format_version.h"
#include "db/record_json.h"
#include "launcher/report/job_table.h"

namespace adaptive_train {
namespace {

struct LauncherPlace {
  std::string host;
  std::int64_t pid = 0;
};

/// A job as it is shown at a time.
struct ShownJob {
  const ListedJob& listed;
  double now = 0;
};

void WriteJson(std::string& to, const LauncherPlace& launcher) {
  JsonObject(to).Add("host", launcher.host).Add("pid", launcher.pid);
}

void WriteJson(std::string& to, const ShownJob& shown) {
  const ListedJob& listed = shown.listed;
  const JobRow& row = listed.row;
  const JobRecord& job = row.job;
  LauncherPlace launcher;
  if (job.launcher) launcher = {job.launcher->host, job.launcher->pid};
  JsonObject(to)
      .Add("job_id", ShownJobId(row))
      .Add("id", row.id)
      .Add("cluster", job.cluster)
      .Add("slurm_job_id", job.slurm_job_id)
      .Add("array_job_id", job.array_job_id)
      .Add("array_task_id", job.array_task_id)
      .Add("restart_count", job.restart_count)
      .Add("run_number", row.run_number)
      .Add("user", job.user)
      .Add("account", job.account)
      .Add("name", job.name)
      .Add("state", ToString(listed.state))
      .Add("exit_code", row.exit_code)
      .Add("reason", row.reason)
      .Add("submit_time", job.submit_time)
      .Add("start_time", job.start_time)
      .Add("end_time", row.end_time)
      .Add("elapsed_s", ElapsedSeconds(listed, shown.now))
      .Add("run_dir", job.run_dir)
      .Add("options", job.options)
      .Add("adaptive_train_version", job.adaptive_train_version)
      .Add("launcher", launcher)
      .Add("ranks", row.ranks)
      .Add("nodes", row.nodes)
      .Add("summary", row.summary)
      .Add("launch_retries", row.launch_retries)
      .Add("launches", listed.launches)
      .Add("failures", listed.failures);
}

}  // namespace

std::string RenderJobsJson(const std::vector<ListedJob>& jobs, double now) {
  std::vector<ShownJob> shown;
  for (const ListedJob& job : jobs) shown.push_back({job, now});
  std::string text;
  JsonObject(text).Add("format_version", kFormatVersion).Add("jobs", shown);
  return Indented(text, 2) + "\n";
}

}  // namespace adaptive_train
