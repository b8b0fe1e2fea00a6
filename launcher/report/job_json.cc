// The rows of `adaptive-train jobs` as JSON.
#include <nlohmann/json.hpp>

#include "core/format_version.h"
#include "launcher/report/job_table.h"

namespace adaptive_train {
namespace {

using Json = nlohmann::ordered_json;

template <class T>
Json OrNull(const std::optional<T>& value) {
  return value ? Json(*value) : Json(nullptr);
}

Json SummaryJson(const SummaryRecord& summary) {
  return {{"steps", summary.steps},
          {"tokens", summary.tokens},
          {"final_loss", OrNull(summary.final_loss)},
          {"validation_loss", OrNull(summary.validation_loss)},
          {"tokens_per_s", OrNull(summary.tokens_per_s)},
          {"mean_step_s", OrNull(summary.mean_step_s)},
          {"robustness", OrNull(summary.robustness)},
          {"mfu", OrNull(summary.mfu)},
          {"grad_bytes", summary.grad_bytes},
          {"param_bytes", summary.param_bytes},
          {"activation_bytes", summary.activation_bytes},
          {"peak_memory_bytes", summary.peak_memory_bytes},
          {"micro_batches", OrNull(summary.micro_batches)},
          {"predicted_step_s", OrNull(summary.predicted_step_s)},
          {"plan_step_s", OrNull(summary.plan_step_s)}};
}

Json FailuresJson(const std::vector<FailureRecord>& failures) {
  Json array = Json::array();
  for (const FailureRecord& failure : failures) {
    array.push_back({{"time", failure.time},
                     {"step", OrNull(failure.step)},
                     {"rank", OrNull(failure.rank)},
                     {"host", failure.host},
                     {"kind", NameOf(failure.kind)},
                     {"operation", failure.operation},
                     {"peer", failure.peer},
                     {"peer_host", failure.peer_host},
                     {"cause", failure.cause},
                     {"blamed", NameOf(failure.blamed)}});
  }
  return array;
}

Json LaunchesJson(const std::vector<LaunchRecord>& launches) {
  Json array = Json::array();
  for (const LaunchRecord& launch : launches) {
    array.push_back({{"attempt", launch.attempt},
                     {"started", launch.started},
                     {"outcome", ToString(launch.outcome)},
                     {"reason", launch.reason}});
  }
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
          {"summary", row.summary ? SummaryJson(*row.summary) : Json(nullptr)},
          {"launch_retries", row.launch_retries},
          {"launches", LaunchesJson(listed.launches)},
          {"failures", FailuresJson(listed.failures)}};
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
