// Answers of adaptive-traind as JSON, and the frames around messages.
#include "core/profile_reader.h"
#include "db/message_json.h"
#include "db/store_message.h"

namespace adaptive_train {

static void WriteJson(std::string& to, const JobRow& row) {
  JsonObject(to)
      .Add("id", row.id)
      .Add("run_number", row.run_number)
      .Add("run", row.job.uid)
      .Add("job", row.job)
      .Add("state", ToString(row.state))
      .Add("end_time", row.end_time)
      .Add("exit_code", row.exit_code)
      .Add("reason", row.reason)
      .Add("ranks", row.ranks)
      .Add("nodes", row.nodes)
      .Add("summary", row.summary)
      .Add("failures", row.failures)
      .Add("launches", row.launches)
      .Add("launch_retries", row.launch_retries)
      .Add("slurm_state", row.slurm_state);
}

namespace store_answer {
static void WriteJson(std::string& to, const Welcome& welcome) {
  JsonObject(to).Add("protocol", welcome.protocol).Add("program", welcome.program);
}
static void WriteJson(std::string& to, const Done&) { const JsonObject object(to); }
static void WriteJson(std::string& to, const Refused& refused) {
  adaptive_train::WriteJson(to, refused.why);
}
}  // namespace store_answer

namespace {

/// "answer" of each alternative of StoreAnswer, in order.
constexpr const char* kAnswers[] = {"welcome",  "done",     "refused", "number",  "jobs",
                                    "failures", "launches", "profile", "clusters"};
static_assert(std::size(kAnswers) == std::variant_size_v<StoreAnswer>);

/// An answer is bounded by its frame.
constexpr std::size_t kMostInAnswer = kMaxMessageValues;

JobRow RowFromJson(const JsonReader& json) {
  JobRow row;
  Take(json, "id", row.id);
  Take(json, "run_number", row.run_number);
  row.job = ReadJobRecord(json.Part("job"));
  Take(json, "run", row.job.uid);
  std::string state;
  Take(json, "state", state);
  const auto known = JobStateFromString(state);
  if (!known) json.Refuse("state", "there is no state " + Printable(state, 40));
  row.state = known.value_or(JobState::kRunning);
  Take(json, "end_time", row.end_time);
  Take(json, "exit_code", row.exit_code);
  Take(json, "reason", row.reason);
  Take(json, "ranks", row.ranks);
  json.ReadAnyTexts("nodes", row.nodes);
  if (json.FindOptional("summary") != nullptr)
    row.summary = ReadSummaryRecord(json.Part("summary"));
  Take(json, "failures", row.failures);
  Take(json, "launches", row.launches);
  Take(json, "launch_retries", row.launch_retries);
  Take(json, "slurm_state", row.slurm_state);
  return row;
}

/// The content of an answer, for each alternative.
void ReadContent(const JsonReader& json, store_answer::Welcome& welcome) {
  const JsonReader content = json.Part("content");
  Take(content, "protocol", welcome.protocol);
  content.Read("program", welcome.program);
}

void ReadContent(const JsonReader&, store_answer::Done&) {}

void ReadContent(const JsonReader& json, store_answer::Refused& refused) {
  Take(json, "content", refused.why);
}

void ReadContent(const JsonReader& json, std::int64_t& number) { Take(json, "content", number); }

void ReadContent(const JsonReader& json, std::vector<JobRow>& rows) {
  json.ReadList(
      "content", [&](const JsonReader& one) { rows.push_back(RowFromJson(one)); }, kMostInAnswer);
}

void ReadContent(const JsonReader& json, std::vector<FailureRecord>& failures) {
  json.ReadList(
      "content", [&](const JsonReader& one) { failures.push_back(ReadFailureRecord(one)); },
      kMostInAnswer);
}

void ReadContent(const JsonReader& json, std::vector<LaunchRecord>& launches) {
  json.ReadList(
      "content", [&](const JsonReader& one) { launches.push_back(ReadLaunchRecord(one)); },
      kMostInAnswer);
}

void ReadContent(const JsonReader& json, Profile& profile) {
  profile = ReadProfile(json.Part("content"));
}

void ReadContent(const JsonReader& json, std::vector<std::string>& texts) {
  json.ReadAnyTexts("content", texts);
}

/// Reads the alternative that is named `name`, from `Index` on.
template <std::size_t Index = 0>
StoreAnswer ReadAnswerNamed(const std::string& name, const JsonReader& json) {
  if constexpr (Index < std::variant_size_v<StoreAnswer>) {
    if (name != kAnswers[Index]) return ReadAnswerNamed<Index + 1>(name, json);
    std::variant_alternative_t<Index, StoreAnswer> answer{};
    ReadContent(json, answer);
    return answer;
  } else {
    json.Refuse("answer", "there is no answer " + Printable(name, 40) + " in this version");
    return {};
  }
}

}  // namespace

std::string FrameOf(const std::string& text) {
  std::string frame;
  frame.reserve(kFrameHeaderBytes + text.size());
  for (int shift = 24; shift >= 0; shift -= 8)
    frame += static_cast<char>((text.size() >> shift) & 0xff);
  return frame + text;
}

std::size_t FrameSize(const char* header) {
  std::size_t size = 0;
  for (std::size_t i = 0; i < kFrameHeaderBytes; ++i)
    size = (size << 8) | static_cast<unsigned char>(header[i]);
  return size;
}

std::string ToText(const StoreAnswer& answer) {
  std::string text;
  std::visit(
      [&](const auto& content) {
        JsonObject(text).Add("answer", kAnswers[answer.index()]).Add("content", content);
      },
      answer);
  return text;
}

Result<StoreAnswer> ReadStoreAnswer(std::string_view text) {
  return ReadMessage<StoreAnswer>(text, "answer", [](const JsonReader& json) {
    std::string name;
    Take(json, "answer", name);
    return json.Good() ? ReadAnswerNamed(name, json) : StoreAnswer();
  });
}

}  // namespace adaptive_train
