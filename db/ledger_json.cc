#include "db/ledger_json.h"

#include <fmt/format.h>

#include <algorithm>

#include "core/json.h"

namespace adaptive_train {
namespace {

using Json = nlohmann::ordered_json;
using ReadJsonValue = nlohmann::json;

template <class T>
Json OrNull(const std::optional<T>& value) {
  return value ? Json(*value) : Json(nullptr);
}

template <class T>
std::optional<T> Optional(const ReadJsonValue& json, const char* key) {
  const ReadJsonValue& value = json.at(key);
  return value.is_null() ? std::nullopt : std::optional<T>(value.get<T>());
}

template <class T>
void Take(const ReadJsonValue& json, const char* key, T& value) {
  json.at(key).get_to(value);
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

JobRecord JobFromLedger(const ReadJsonValue& json) {
  JobRecord job;
  Take(json, "cluster", job.cluster);
  Take(json, "slurm_job_id", job.slurm_job_id);
  job.array_job_id = Optional<std::int64_t>(json, "array_job_id");
  job.array_task_id = Optional<std::int64_t>(json, "array_task_id");
  Take(json, "restart_count", job.restart_count);
  Take(json, "submit_time", job.submit_time);
  Take(json, "user", job.user);
  Take(json, "name", job.name);
  Take(json, "run_dir", job.run_dir);
  Take(json, "config", job.config);
  Take(json, "options", job.options);
  Take(json, "adaptive_train_version", job.adaptive_train_version);
  Take(json, "start_time", job.start_time);
  const ReadJsonValue& from = json.at("launcher");
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

LedgerEntry NodesFromLedger(const ReadJsonValue& json) {
  std::vector<NodeRecord> nodes;
  for (const ReadJsonValue& one : json) {
    NodeRecord& node = nodes.emplace_back();
    Take(one, "name", node.name);
    Take(one, "source", node.source);
    Take(one, "cpu_model", node.cpu_model);
    Take(one, "cores", node.cores);
    Take(one, "memory_bytes", node.memory_bytes);
    Take(one, "snapshot", node.snapshot);
  }
  return nodes;
}

Json ToLedger(const PlanRecord& plan) {
  return {{"plan", plan.plan},
          {"ranks", plan.ranks},
          {"predicted_step_s", OrNull(plan.predicted_step_s)},
          {"why", plan.why}};
}

LedgerEntry PlanFromLedger(const ReadJsonValue& json) {
  PlanRecord plan;
  Take(json, "plan", plan.plan);
  Take(json, "ranks", plan.ranks);
  plan.predicted_step_s = Optional<double>(json, "predicted_step_s");
  Take(json, "why", plan.why);
  return plan;
}

Json ToLedger(const LaunchRecord& launch) {
  return {{"attempt", launch.attempt},
          {"started", launch.started},
          {"outcome", ToString(launch.outcome)},
          {"reason", launch.reason}};
}

LedgerEntry LaunchFromLedger(const ReadJsonValue& json) {
  LaunchRecord launch;
  Take(json, "attempt", launch.attempt);
  Take(json, "started", launch.started);
  launch.outcome = LaunchOutcomeFromString(json.at("outcome").get<std::string>())
                       .value_or(LaunchOutcome::kFailed);
  Take(json, "reason", launch.reason);
  return launch;
}

Json ToLedger(const FailureRecord& failure) {
  return {{"time", failure.time}, {"step", OrNull(failure.step)}, {"rank", OrNull(failure.rank)},
          {"host", failure.host}, {"kind", failure.kind},         {"operation", failure.operation},
          {"peer", failure.peer}, {"cause", failure.cause}};
}

LedgerEntry FailureFromLedger(const ReadJsonValue& json) {
  FailureRecord failure;
  Take(json, "time", failure.time);
  failure.step = Optional<std::int64_t>(json, "step");
  failure.rank = Optional<std::int64_t>(json, "rank");
  Take(json, "host", failure.host);
  Take(json, "kind", failure.kind);
  Take(json, "operation", failure.operation);
  Take(json, "peer", failure.peer);
  Take(json, "cause", failure.cause);
  return failure;
}

Json ToLedger(const MeasuredRecord& measured) {
  return {{"cluster", measured.cluster}, {"profile", Json::parse(ToJson(measured.profile))}};
}

Result<LedgerEntry> MeasuredFromLedger(const ReadJsonValue& json) {
  auto profile = ProfileFromJson(json.at("profile").dump());
  if (!profile) return tl::unexpected(profile.error());
  return MeasuredRecord{json.at("cluster").get<std::string>(), std::move(*profile)};
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
          {"peak_memory_bytes", summary.peak_memory_bytes}};
}

LedgerEntry SummaryFromLedger(const ReadJsonValue& json) {
  SummaryRecord summary;
  Take(json, "steps", summary.steps);
  Take(json, "tokens", summary.tokens);
  summary.final_loss = Optional<double>(json, "final_loss");
  summary.validation_loss = Optional<double>(json, "validation_loss");
  summary.tokens_per_s = Optional<double>(json, "tokens_per_s");
  summary.mean_step_s = Optional<double>(json, "mean_step_s");
  summary.robustness = Optional<double>(json, "robustness");
  summary.mfu = Optional<double>(json, "mfu");
  Take(json, "grad_bytes", summary.grad_bytes);
  Take(json, "param_bytes", summary.param_bytes);
  Take(json, "activation_bytes", summary.activation_bytes);
  Take(json, "peak_memory_bytes", summary.peak_memory_bytes);
  return summary;
}

Json ToLedger(const JobEnd& end) {
  return {{"state", ToString(end.state)},
          {"exit_code", end.exit_code},
          {"end_time", end.end_time},
          {"reason", end.reason}};
}

Result<LedgerEntry> EndFromLedger(const ReadJsonValue& json) {
  const auto word = json.at("state").get<std::string>();
  const auto state = JobStateFromString(word);
  if (!state || *state == JobState::kRunning || *state == JobState::kLost)
    return Fail(fmt::format("no job ends in the state {}", Printable(word, 40)));
  JobEnd end;
  end.state = *state;
  Take(json, "exit_code", end.exit_code);
  Take(json, "end_time", end.end_time);
  Take(json, "reason", end.reason);
  return end;
}

/// The JSON member for each alternative of LedgerEntry, in order.
constexpr const char* kMembers[] = {"nodes",    "plan",    "launch", "failure",
                                    "measured", "summary", "end"};
static_assert(std::size(kMembers) == std::variant_size_v<LedgerEntry>);

Result<LedgerEntry> EntryFromLedger(const ReadJsonValue& json) {
  if (json.contains("nodes")) return NodesFromLedger(json.at("nodes"));
  if (json.contains("plan")) return PlanFromLedger(json.at("plan"));
  if (json.contains("launch")) return LaunchFromLedger(json.at("launch"));
  if (json.contains("failure")) return FailureFromLedger(json.at("failure"));
  if (json.contains("measured")) return MeasuredFromLedger(json.at("measured"));
  if (json.contains("summary")) return SummaryFromLedger(json.at("summary"));
  if (json.contains("end")) return EndFromLedger(json.at("end"));
  return Fail("it holds nothing that a ledger holds");
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
  return ReadJson<ReadLine>(line, "ledger", [](const ReadJsonValue& json) -> Result<ReadLine> {
    ReadLine read;
    read.uid = json.at("run").get<std::string>();
    if (!IsUid(read.uid)) return Fail("run: not 32 hexadecimal digits");
    const auto number = json.at("number").get<std::int64_t>();
    if (number == 0) {
      JobRecord job = JobFromLedger(json.at("job"));
      job.uid = read.uid;
      read.content = std::move(job);
      return read;
    }
    if (number < 0) return Fail("number: below 0");
    auto entry = EntryFromLedger(json);
    if (!entry) return tl::unexpected(entry.error());
    read.content = NumberedEntry{number, std::move(*entry)};
    return read;
  });
}

}  // namespace adaptive_train
