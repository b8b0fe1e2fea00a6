#include "db/record_json.h"

#include <fmt/format.h>

#include "core/profile_reader.h"

namespace adaptive_train {

// Found by the writers of what holds them, so not in a namespace of this file's own.
static void WriteJson(std::string& to, const LauncherProcess& launcher) {
  JsonObject(to)
      .Add("host", launcher.host)
      .Add("boot_id", launcher.boot_id)
      .Add("pid_namespace", launcher.pid_namespace)
      .Add("pid", launcher.pid)
      .Add("start_ticks", launcher.start_ticks);
}

static void WriteJson(std::string& to, const NodeRecord& node) {
  JsonObject(to)
      .Add("name", node.name)
      .Add("source", node.source)
      .Add("cpu_model", node.cpu_model)
      .Add("cores", node.cores)
      .Add("memory_bytes", node.memory_bytes)
      .Add("snapshot", node.snapshot);
}

static void WriteJson(std::string& to, const PlanRecord& plan) {
  JsonObject(to)
      .Add("plan", plan.plan)
      .Add("ranks", plan.ranks)
      .Add("predicted_step_s", plan.predicted_step_s)
      .Add("why", plan.why);
}

static void WriteJson(std::string& to, const JobEnd& end) {
  JsonObject(to)
      .Add("state", ToString(end.state))
      .Add("exit_code", end.exit_code)
      .Add("end_time", end.end_time)
      .Add("reason", end.reason);
}

namespace {

/// Of a run; more are garbage.
constexpr std::size_t kMostNodes = 65536;

}  // namespace

void WriteJson(std::string& to, const JobRecord& job) {
  JsonObject(to)
      .Add("cluster", job.cluster)
      .Add("slurm_job_id", job.slurm_job_id)
      .Add("array_job_id", job.array_job_id)
      .Add("array_task_id", job.array_task_id)
      .Add("restart_count", job.restart_count)
      .Add("submit_time", job.submit_time)
      .Add("user", job.user)
      .Add("account", job.account)
      .Add("name", job.name)
      .Add("run_dir", job.run_dir)
      .Add("config", job.config)
      .Add("options", job.options)
      .Add("adaptive_train_version", job.adaptive_train_version)
      .Add("start_time", job.start_time)
      .Add("launcher", job.launcher.value_or(LauncherProcess{}));
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
  if (json.Has("account")) Take(json, "account", job.account);  // none of earlier programs'
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

LedgerEntry ReadPlan(const JsonReader& json) {
  PlanRecord plan;
  Take(json, "plan", plan.plan);
  Take(json, "ranks", plan.ranks);
  Take(json, "predicted_step_s", plan.predicted_step_s);
  Take(json, "why", plan.why);
  return plan;
}

}  // namespace

void WriteJson(std::string& to, const LaunchRecord& launch) {
  JsonObject(to)
      .Add("attempt", launch.attempt)
      .Add("started", launch.started)
      .Add("outcome", ToString(launch.outcome))
      .Add("reason", launch.reason);
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

void WriteJson(std::string& to, const FailureRecord& failure) {
  JsonObject(to)
      .Add("time", failure.time)
      .Add("step", failure.step)
      .Add("rank", failure.rank)
      .Add("host", failure.host)
      .Add("kind", NameOf(failure.kind))
      .Add("operation", failure.operation)
      .Add("peer", failure.peer)
      .Add("peer_host", failure.peer_host)
      .Add("cause", failure.cause)
      .Add("blamed", NameOf(failure.blamed));
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

void WriteJson(std::string& to, const MeasuredRecord& measured) {
  JsonObject(to).Add("cluster", measured.cluster).Add("profile", measured.profile);
}

MeasuredRecord ReadMeasuredRecord(const JsonReader& json) {
  MeasuredRecord measured;
  Take(json, "cluster", measured.cluster);
  measured.profile = ReadProfile(json.Part("profile"));
  return measured;
}

void WriteJson(std::string& to, const SummaryRecord& summary) {
  JsonObject(to)
      .Add("steps", summary.steps)
      .Add("tokens", summary.tokens)
      .Add("final_loss", summary.final_loss)
      .Add("validation_loss", summary.validation_loss)
      .Add("tokens_per_s", summary.tokens_per_s)
      .Add("mean_step_s", summary.mean_step_s)
      .Add("robustness", summary.robustness)
      .Add("mfu", summary.mfu)
      .Add("grad_bytes", summary.grad_bytes)
      .Add("param_bytes", summary.param_bytes)
      .Add("activation_bytes", summary.activation_bytes)
      .Add("peak_memory_bytes", summary.peak_memory_bytes)
      .Add("micro_batches", summary.micro_batches)
      .Add("predicted_step_s", summary.predicted_step_s)
      .Add("plan_step_s", summary.plan_step_s);
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

void AddEntry(JsonObject& to, const LedgerEntry& entry) {
  std::visit([&](const auto& content) { to.Add(kMembers[entry.index()], content); }, entry);
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
