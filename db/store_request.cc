// Requests to adaptive-traind as JSON.
#include "db/message_json.h"
#include "db/store_message.h"

namespace adaptive_train {

static void WriteJson(std::string& to, const NumberedEntry& entry) {
  JsonObject object(to);
  object.Add("number", entry.number);
  AddEntry(object, entry.entry);
}

static void WriteJson(std::string& to, const JobKey& key) {
  JsonObject(to).Add("local", key.local).Add("id", key.id).Add("task", key.task);
}

namespace {

/// "request" of each alternative of StoreRequest, in order.
constexpr const char* kRequests[] = {"hello",       "begin_job",       "record",
                                     "found_out",   "take_in",         "find_jobs",
                                     "failures_of", "launches_of",     "save_measurements",
                                     "profile_of",  "measurements_of", "clusters"};
static_assert(std::size(kRequests) == std::variant_size_v<StoreRequest>);

/// Of a job or a ledger; more are garbage.
constexpr std::size_t kMostInRequest = 65536;

/// Members of a request and their reading, a pair for each alternative.
void AddMembers(JsonObject& to, const store_request::Hello& hello) {
  to.Add("oldest", hello.oldest).Add("newest", hello.newest).Add("program", hello.program);
}
void ReadMembers(const JsonReader& json, store_request::Hello& hello) {
  Take(json, "oldest", hello.oldest);
  Take(json, "newest", hello.newest);
  json.Read("program", hello.program);
}

void AddMembers(JsonObject& to, const store_request::BeginJob& begin) {
  to.Add("run", begin.job.uid).Add("job", begin.job);
}
void ReadRun(const JsonReader& json, JobRecord& job) {
  job = ReadJobRecord(json.Part("job"));
  Take(json, "run", job.uid);
}
void ReadMembers(const JsonReader& json, store_request::BeginJob& begin) {
  ReadRun(json, begin.job);
  if (!begin.job.uid.empty() && !IsRunUid(begin.job.uid))
    json.Refuse("run", "neither empty nor 32 hexadecimal digits");
}

NumberedEntry ReadNumbered(const JsonReader& json) {
  NumberedEntry entry;
  json.Read("number", entry.number, 1, std::numeric_limits<std::int64_t>::max());
  entry.entry = ReadEntry(json);
  return entry;
}

void AddMembers(JsonObject& to, const store_request::Record& record) {
  to.Add("id", record.job_id).Add("entry", record.entry);
}
void ReadMembers(const JsonReader& json, store_request::Record& record) {
  Take(json, "id", record.job_id);
  record.entry = ReadNumbered(json.Part("entry"));
}

void TakeState(const JsonReader& json, const char* key, JobState& state) {
  std::string word;
  Take(json, key, word);
  const auto known = JobStateFromString(word);
  if (!known) return json.Refuse(key, "there is no state " + Printable(word, 40));
  state = *known;
}

void AddMembers(JsonObject& to, const store_request::FoundOut& found) {
  to.Add("id", found.job_id)
      .Add("was", ToString(found.was))
      .Add("state", ToString(found.end.state))
      .Add("end_time", found.end.end_time)
      .Add("reason", found.end.reason)
      .Add("slurm_state", found.end.slurm_state);
}
void ReadMembers(const JsonReader& json, store_request::FoundOut& found) {
  Take(json, "id", found.job_id);
  TakeState(json, "was", found.was);
  TakeState(json, "state", found.end.state);
  Take(json, "end_time", found.end.end_time);
  Take(json, "reason", found.end.reason);
  Take(json, "slurm_state", found.end.slurm_state);
}

void AddMembers(JsonObject& to, const store_request::TakeIn& take) {
  to.Add("run", take.run.job.uid).Add("job", take.run.job).Add("entries", take.run.entries);
}
void ReadMembers(const JsonReader& json, store_request::TakeIn& take) {
  ReadRun(json, take.run.job);
  if (!IsRunUid(take.run.job.uid)) json.Refuse("run", "not 32 hexadecimal digits");
  json.ReadList(
      "entries", [&](const JsonReader& one) { take.run.entries.push_back(ReadNumbered(one)); },
      kMostInRequest);
}

void AddMembers(JsonObject& to, const store_request::FindJobs& find) {
  const JobQuery& query = find.query;
  std::vector<std::string_view> states;
  for (const JobState state : query.states) states.push_back(ToString(state));
  to.Add("ids", query.ids)
      .Add("all_users", query.all_users)
      .Add("users", query.users)
      .Add("start", query.start)
      .Add("end", query.end)
      .Add("states", states)
      .Add("newest", query.newest)
      .Add("configs", query.configs);
}
void ReadMembers(const JsonReader& json, store_request::FindJobs& find) {
  JobQuery& query = find.query;
  json.ReadList(
      "ids",
      [&](const JsonReader& one) {
        JobKey& key = query.ids.emplace_back();
        Take(one, "local", key.local);
        Take(one, "id", key.id);
        Take(one, "task", key.task);
      },
      kMostInRequest);
  Take(json, "all_users", query.all_users);
  json.ReadAnyTexts("users", query.users);
  Take(json, "start", query.start);
  Take(json, "end", query.end);
  if (json.Has("newest")) Take(json, "newest", query.newest);
  if (json.Has("configs")) Take(json, "configs", query.configs);
  if (query.newest.value_or(0) < 0) return json.Refuse("newest", "a count of jobs is not negative");
  std::vector<std::string> states;
  json.ReadAnyTexts("states", states);
  for (const std::string& word : states) {
    const auto state = JobStateFromString(word);
    if (!state) return json.Refuse("states", "there is no state " + Printable(word, 40));
    query.states.push_back(*state);
  }
}

/// The requests about one job.
template <class OfJob>
concept AsksOfJob = std::same_as<OfJob, store_request::FailuresOf> ||
    std::same_as<OfJob, store_request::LaunchesOf>;
template <AsksOfJob OfJob>
void AddMembers(JsonObject& to, const OfJob& of) {
  to.Add("id", of.job_id);
}
template <AsksOfJob OfJob>
void ReadMembers(const JsonReader& json, OfJob& of) {
  Take(json, "id", of.job_id);
}

void AddMembers(JsonObject& to, const store_request::SaveMeasurements& save) {
  to.Add("measured", save.measured);
}
void ReadMembers(const JsonReader& json, store_request::SaveMeasurements& save) {
  save.measured = ReadMeasuredRecord(json.Part("measured"));
}

void AddMembers(JsonObject& to, const store_request::ProfileOf& of) {
  const ProfileQuery& query = of.query;
  to.Add("cluster", query.cluster)
      .Add("nodes", query.nodes)
      .Add("device_kinds", query.device_kinds)
      .Add("model_key", query.model_key)
      .Add("now", query.now)
      .Add("failure_half_life_s", query.failure_half_life_s)
      .Add("links", query.links);
}
void ReadMembers(const JsonReader& json, store_request::ProfileOf& of) {
  ProfileQuery& query = of.query;
  Take(json, "cluster", query.cluster);
  json.ReadAnyTexts("nodes", query.nodes);
  json.ReadAnyTexts("device_kinds", query.device_kinds);
  if (query.nodes.size() > kMostInRequest || query.device_kinds.size() > kMostInRequest)
    json.Refuse("nodes", fmt::format("more than {}", kMostInRequest));
  Take(json, "model_key", query.model_key);
  Take(json, "now", query.now);
  json.ReadNumber("failure_half_life_s", query.failure_half_life_s, false);
  if (json.Has("links")) Take(json, "links", query.links);
}

void AddMembers(JsonObject& to, const store_request::MeasurementsOf& of) {
  to.Add("cluster", of.cluster);
}
void ReadMembers(const JsonReader& json, store_request::MeasurementsOf& of) {
  Take(json, "cluster", of.cluster);
}

void AddMembers(JsonObject&, const store_request::MeasuredClusters&) {}
void ReadMembers(const JsonReader&, store_request::MeasuredClusters&) {}

/// Reads the alternative that is named `name`, from `Index` on.
template <std::size_t Index = 0>
StoreRequest ReadNamed(const std::string& name, const JsonReader& json) {
  if constexpr (Index < std::variant_size_v<StoreRequest>) {
    if (name != kRequests[Index]) return ReadNamed<Index + 1>(name, json);
    std::variant_alternative_t<Index, StoreRequest> request;
    ReadMembers(json, request);
    return request;
  } else {
    json.Refuse("request", "there is no request " + Printable(name, 40) + " in this version");
    return {};
  }
}

}  // namespace

std::string_view NameOf(const StoreRequest& request) { return kRequests[request.index()]; }

bool Writes(const StoreRequest& request) {
  return std::holds_alternative<store_request::BeginJob>(request) ||
         std::holds_alternative<store_request::Record>(request) ||
         std::holds_alternative<store_request::FoundOut>(request) ||
         std::holds_alternative<store_request::TakeIn>(request) ||
         std::holds_alternative<store_request::SaveMeasurements>(request);
}

std::string ToText(const StoreRequest& request) {
  std::string text;
  {
    JsonObject object(text);
    object.Add("request", kRequests[request.index()]);
    std::visit([&](const auto& one) { AddMembers(object, one); }, request);
  }
  return text;
}

Result<StoreRequest> ReadStoreRequest(std::string_view text) {
  return ReadMessage<StoreRequest>(text, "request", [](const JsonReader& json) {
    std::string name;
    Take(json, "request", name);
    return json.Good() ? ReadNamed(name, json) : StoreRequest();
  });
}

}  // namespace adaptive_train
