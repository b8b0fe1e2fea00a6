#include "db/record_json.h"

#include <fmt/format.h>

#include "core/profile_reader.h"

namespace adaptive_train {
namespace {

using Json = RecordJson;

/// Of a run; more are garbage.
constexpr std::size_t kMostNodes = 65536;

Json ToRecordJson(const LauncherProcess& launcher) {
  return {{"host", launcher.host},
          {"boot_id", launcher.boot_id},
          {"pid_namespace", launcher.pid_namespace},
          {"pid", launcher.pid},
          {"start_ticks", launcher.start_ticks}};
}

}  // namespace

RecordJson ToRecordJson(const JobRecord& job) {
  return {{"cluster", job.cluster},
          {"slurm_job_id", job.slurm_job_id},
          {"array_job_id", OrNull(job.array_job_id)},
          {"array_task_id", OrNull(job.array_task_id)},
          {"restart_count", job.restart_count},
          {"submit_time", job.submit_time},
          {"user", job.user},
          {"name", job.name},
          {"run_dir", job.run_dir},
          {"config", job.config},
          {"options", job.options},
          {"adaptive_train_version", job.adaptive_train_version},
          {"start_time", job.start_time},
          {"launcher", ToRecordJson(job.launcher.value_or(LauncherProcess{}))}};
}

JobRecord ReadJobRecord(const JsonReader& json) {
  JobRecord job;
  Take(json, "cluster", job.cluster);
  Take(json, "slurm_job_id", job.slurm_job_id);
  Take(json, "array_job_id", job.array_job_id);
  Take(json, "array_task_id", job.array_task_id);
  Take(json, "restart_count", job.restart_count);
  Take(json, "submit_time", job.submit_time);
  Take(json, "user", job.user);
  Take(json, "name", job.name);
  Take(json, "run_dir", job.run_dir);
  Take(json, "config", job.config);
  Take(json, "options", job.options);
  Take(json, "adaptive_train_version", job.adaptive_train_version);
  Take(json, "start_time", job.start_time);
  const JsonReader from = json.Part("launcher");
  LauncherProcess& launcher = job.launcher.emplace();
  Take(from, "host", launcher.host);
  Take(from, "boot_id", launcher.boot_id);
  Take(from, "pid_namespace", launcher.pid_namespace);
  Take(from, "pid", launcher.pid);
  Take(from, "start_ticks", launcher.start_ticks);
  return job;
}

namespace {

Json ToRecordJson(const std::vector<NodeRecord>& nodes) {
  Json array = Json::array();
  for (const NodeRecord& node : nodes) {
    array.push_back({{"name", node.name},
                     {"source", node.source},
                     {"cpu_model", node.cpu_model},
                     {"cores", node.cores},
                     {"memory_bytes", node.memory_bytes},
                     {"snapshot", node.snapshot}});
  }
  return array;
}

LedgerEntry ReadNodes(const JsonReader& json) {
  std::vector<NodeRecord> nodes;
  const auto read_node = [&](const JsonReader& one) {
    NodeRecord& node = nodes.emplace_back();
    Take(one, "name", node.name);
    Take(one, "source", node.source);
    Take(one, "cpu_model", node.cpu_model);
    Take(one, "cores", node.cores);
    Take(one, "memory_bytes", node.memory_bytes);
    Take(one, "snapshot", node.snapshot);
  };
  json.ReadList("nodes", read_node, kMostNodes);
  return nodes;
}

Json ToRecordJson(const PlanRecord& plan) {
  return {{"plan", plan.plan},
          {"ranks", plan.ranks},
          {"predicted_step_s", OrNull(plan.predicted_step_s)},
          {"why", plan.why}};
}

LedgerEntry ReadPlan(const JsonReader& json) {
  PlanRecord plan;
  Take(json, "plan", plan.plan);
  Take(json, "ranks", plan.ranks);
  Take(json, "predicted_step_s", plan.predicted_step_s);
  Take(json, "why", plan.why);
  return plan;
}

}  // namespace

RecordJson ToRecordJson(const LaunchRecord& launch) {
  return {{"attempt", launch.attempt},
          {"started", launch.started},
          {"outcome", ToString(launch.outcome)},
          {"reason", launch.reason}};
}

LaunchRecord ReadLaunchRecord(const JsonReader& json) {
  LaunchRecord launch;
  Take(json, "attempt", launch.attempt);
  Take(json, "started", launch.started);
  std::string outcome;
  Take(json, "outcome", outcome);
  launch.outcome = LaunchOutcomeFromString(outcome).value_or(LaunchOutcome::kFailed);
  Take(json, "reason", launch.reason);
  return launch;
}

RecordJson ToRecordJson(const FailureRecord& failure) {
  return {{"time", failure.time},         {"step", OrNull(failure.step)},
          {"rank", OrNull(failure.rank)}, {"host", failure.host},
          {"kind", NameOf(failure.kind)}, {"operation", failure.operation},
          {"peer", failure.peer},         {"peer_host", failure.peer_host},
          {"cause", failure.cause},       {"blamed", NameOf(failure.blamed)}};
}

FailureRecord ReadFailureRecord(const JsonReader& json) {
  FailureRecord failure;
  Take(json, "time", failure.time);
  Take(json, "step", failure.step);
  Take(json, "rank", failure.rank);
  Take(json, "host", failure.host);
  std::string kind, blamed;
  Take(json, "kind", kind);
  Take(json, "operation", failure.operation);
  Take(json, "peer", failure.peer);
  Take(json, "cause", failure.cause);
  if (json.Has("peer_host")) Take(json, "peer_host", failure.peer_host);
  if (json.Has("blamed")) Take(json, "blamed", blamed);
  failure.blamed = ChoiceOf<Blamed>(blamed).value_or(Blamed::kNobody);
  failure.kind = ChoiceOf<FailureKind>(kind).value_or(FailureKind::kUnknown);
  // Earlier programs knew this word for it, and no blame.
  if (kind == "silent") failure.kind = FailureKind::kNodeSilent, failure.blamed = Blamed::kNode;
  return failure;
}

RecordJson ToRecordJson(const MeasuredRecord& measured) {
  return {{"cluster", measured.cluster}, {"profile", Json::parse(ToJson(measured.profile))}};
}

MeasuredRecord ReadMeasuredRecord(const JsonReader& json) {
  MeasuredRecord measured;
  Take(json, "cluster", measured.cluster);
  measured.profile = ReadProfile(json.Part("profile"));
  return measured;
}

RecordJson ToRecordJson(const SummaryRecord& summary) {
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

SummaryRecord ReadSummaryRecord(const JsonReader& json) {
  SummaryRecord summary;
  Take(json, "steps", summary.steps);
  Take(json, "tokens", summary.tokens);
  Take(json, "final_loss", summary.final_loss);
  Take(json, "validation_loss", summary.validation_loss);
  Take(json, "tokens_per_s", summary.tokens_per_s);
  Take(json, "mean_step_s", summary.mean_step_s);
  Take(json, "robustness", summary.robustness);
  Take(json, "mfu", summary.mfu);
  Take(json, "grad_bytes", summary.grad_bytes);
  Take(json, "param_bytes", summary.param_bytes);
  Take(json, "activation_bytes", summary.activation_bytes);
  Take(json, "peak_memory_bytes", summary.peak_memory_bytes);
  Take(json, "micro_batches", summary.micro_batches);
  Take(json, "predicted_step_s", summary.predicted_step_s);
  Take(json, "plan_step_s", summary.plan_step_s);
  return summary;
}

namespace {

Json ToRecordJson(const JobEnd& end) {
  return {{"state", ToString(end.state)},
          {"exit_code", end.exit_code},
          {"end_time", end.end_time},
          {"reason", end.reason}};
}

LedgerEntry ReadEnd(const JsonReader& json) {
  std::string word;
  Take(json, "state", word);
  const auto state = JobStateFromString(word);
  if (!state || *state == JobState::kRunning || *state == JobState::kLost)
    json.Refuse("state", "no job ends in the state " + Printable(word, 40));
  JobEnd end;
  end.state = state.value_or(JobState::kFailed);
  Take(json, "exit_code", end.exit_code);
  Take(json, "end_time", end.end_time);
  Take(json, "reason", end.reason);
  return end;
}

/// The JSON member for each alternative of LedgerEntry, in order.
constexpr const char* kMembers[] = {"nodes",    "plan",    "launch", "failure",
                                    "measured", "summary", "end"};
static_assert(std::size(kMembers) == std::variant_size_v<LedgerEntry>);

}  // namespace

void AddEntry(RecordJson& json, const LedgerEntry& entry) {
  json[kMembers[entry.index()]] =
      std::visit([](const auto& content) -> Json { return ToRecordJson(content); }, entry);
}

LedgerEntry ReadEntry(const JsonReader& json) {
  if (json.Has("nodes")) return ReadNodes(json);
  if (json.Has("plan")) return ReadPlan(json.Part("plan"));
  if (json.Has("launch")) return ReadLaunchRecord(json.Part("launch"));
  if (json.Has("failure")) return ReadFailureRecord(json.Part("failure"));
  if (json.Has("measured")) return ReadMeasuredRecord(json.Part("measured"));
  if (json.Has("summary")) return ReadSummaryRecord(json.Part("summary"));
  if (json.Has("end")) return ReadEnd(json.Part("end"));
  json.Refuse("number", "the line holds nothing that a ledger holds");
  return {};
}

}  // namespace adaptive_train
