#include "db/ledger_json.h"

#include <fmt/format.h>

#include <algorithm>
#include <concepts>
#include <limits>

#include "core/json_reader.h"
#include "core/profile_reader.h"

namespace adaptive_train {
namespace {

using Json = nlohmann::ordered_json;

/// Of a run; more are garbage.
constexpr std::size_t kMostNodes = 65536;

template <class T>
Json OrNull(const std::optional<T>& value) {
  return value ? Json(*value) : Json(nullptr);
}

void Take(const JsonReader& from, const char* key, std::string& value) {
  from.ReadAnyText(key, value);
}

void Take(const JsonReader& from, const char* key, double& value) { from.ReadReal(key, value); }

template <std::integral Integer>
void Take(const JsonReader& from, const char* key, Integer& value) {
  from.Read(key, value, std::numeric_limits<Integer>::min(), std::numeric_limits<Integer>::max());
}

/// None where the member is null.
template <class T>
void Take(const JsonReader& from, const char* key, std::optional<T>& value) {
  if (from.FindOptional(key) != nullptr) Take(from, key, value.emplace());
}

Json ToLedger(const LauncherProcess& launcher) {
  return {{"host", launcher.host},
          {"boot_id", launcher.boot_id},
          {"pid_namespace", launcher.pid_namespace},
          {"pid", launcher.pid},
          {"start_ticks", launcher.start_ticks}};
}

Json ToLedger(const JobRecord& job) {
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
          {"launcher", ToLedger(job.launcher.value_or(LauncherProcess{}))}};
}

JobRecord JobFromLedger(const JsonReader& json) {
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

Json ToLedger(const std::vector<NodeRecord>& nodes) {
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

LedgerEntry NodesFromLedger(const JsonReader& json) {
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

Json ToLedger(const PlanRecord& plan) {
  return {{"plan", plan.plan},
          {"ranks", plan.ranks},
          {"predicted_step_s", OrNull(plan.predicted_step_s)},
          {"why", plan.why}};
}

LedgerEntry PlanFromLedger(const JsonReader& json) {
  PlanRecord plan;
  Take(json, "plan", plan.plan);
  Take(json, "ranks", plan.ranks);
  Take(json, "predicted_step_s", plan.predicted_step_s);
  Take(json, "why", plan.why);
  return plan;
}

Json ToLedger(const LaunchRecord& launch) {
  return {{"attempt", launch.attempt},
          {"started", launch.started},
          {"outcome", ToString(launch.outcome)},
          {"reason", launch.reason}};
}

LedgerEntry LaunchFromLedger(const JsonReader& json) {
  LaunchRecord launch;
  Take(json, "attempt", launch.attempt);
  Take(json, "started", launch.started);
  std::string outcome;
  Take(json, "outcome", outcome);
  launch.outcome = LaunchOutcomeFromString(outcome).value_or(LaunchOutcome::kFailed);
  Take(json, "reason", launch.reason);
  return launch;
}

Json ToLedger(const FailureRecord& failure) {
  return {{"time", failure.time},           {"step", OrNull(failure.step)},
          {"rank", OrNull(failure.rank)},   {"host", failure.host},
          {"kind", NameOf(failure.kind)},   {"operation", failure.operation},
          {"peer", failure.peer},           {"cause", failure.cause},
          {"peer_host", failure.peer_host}, {"blamed", NameOf(failure.blamed)}};
}

LedgerEntry FailureFromLedger(const JsonReader& json) {
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

Json ToLedger(const MeasuredRecord& measured) {
  return {{"cluster", measured.cluster}, {"profile", Json::parse(ToJson(measured.profile))}};
}

LedgerEntry MeasuredFromLedger(const JsonReader& json) {
  MeasuredRecord measured;
  Take(json, "cluster", measured.cluster);
  measured.profile = ReadProfile(json.Part("profile"));
  return measured;
}

Json ToLedger(const SummaryRecord& summary) {
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

LedgerEntry SummaryFromLedger(const JsonReader& json) {
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

Json ToLedger(const JobEnd& end) {
  return {{"state", ToString(end.state)},
          {"exit_code", end.exit_code},
          {"end_time", end.end_time},
          {"reason", end.reason}};
}

LedgerEntry EndFromLedger(const JsonReader& json) {
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

LedgerEntry EntryFromLedger(const JsonReader& json) {
  if (json.Has("nodes")) return NodesFromLedger(json);
  if (json.Has("plan")) return PlanFromLedger(json.Part("plan"));
  if (json.Has("launch")) return LaunchFromLedger(json.Part("launch"));
  if (json.Has("failure")) return FailureFromLedger(json.Part("failure"));
  if (json.Has("measured")) return MeasuredFromLedger(json.Part("measured"));
  if (json.Has("summary")) return SummaryFromLedger(json.Part("summary"));
  if (json.Has("end")) return EndFromLedger(json.Part("end"));
  json.Refuse("number", "the line holds nothing that a ledger holds");
  return {};
}

std::string OneLine(const std::string& uid, std::int64_t number, const char* member, Json content) {
  Json json = {{"format_version", kFormatVersion}, {"run", uid}, {"number", number}};
  json[member] = std::move(content);
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

bool IsUid(const std::string& text) {
  return text.size() == 32 && std::all_of(text.begin(), text.end(),
                                          [](unsigned char c) { return std::isxdigit(c) != 0; });
}

}  // namespace

std::string LedgerLine(const JobRecord& job) { return OneLine(job.uid, 0, "job", ToLedger(job)); }

std::string LedgerLine(const std::string& uid, const NumberedEntry& entry) {
  return OneLine(uid, entry.number, kMembers[entry.entry.index()],
                 std::visit([](const auto& content) { return ToLedger(content); }, entry.entry));
}

Result<ReadLine> ReadLedgerLine(std::string_view line) {
  return ReadJson<ReadLine>(line, "ledger", [](const nlohmann::json& json) -> Result<ReadLine> {
    std::string error;
    const JsonReader reader(json, "", error);
    ReadLine read;
    std::int64_t number = 0;
    reader.Read("run", read.uid);
    if (!IsUid(read.uid)) reader.Refuse("run", "not 32 hexadecimal digits");
    reader.Read("number", number, 0, std::numeric_limits<std::int64_t>::max());
    if (number == 0) {
      JobRecord job = JobFromLedger(reader.Part("job"));
      job.uid = read.uid;
      read.content = std::move(job);
    } else {
      read.content = NumberedEntry{number, EntryFromLedger(reader)};
    }
    if (!error.empty()) return Fail("ledger: " + error);
    return read;
  });
}

}  // namespace adaptive_train
