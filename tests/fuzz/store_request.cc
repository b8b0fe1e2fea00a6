// Requests to adaptive-traind from one user, where another has stored something: whatever is asked,
// no answer holds a text of the other's.

#include "db/database.h"
#include "db/job_writes.h"
#include "db/open_database.h"
#include "db/profile_rows.h"
#include "db/service/answer_request.h"
#include "tests/fuzz/fuzz.h"

namespace adaptive_train::fuzz {
namespace {

constexpr const char* kSecret = "anns-secret";
constexpr Owner kAnn = 1000;
const std::string kAnnsRun(32, 'a');

JobRecord SomeJob(const std::string& text, const std::string& uid) {
  JobRecord job;
  job.cluster = "alpha";
  job.slurm_job_id = 7;
  job.user = job.name = job.run_dir = job.config = job.options = text;
  job.launcher = LauncherProcess{text, text, text, 12, 34};
  job.uid = uid;
  return job;
}

Profile SomeProfile(const std::string& layer) {
  const Evidence evidence{2, 0.05, 1.9e9};
  Profile profile;
  profile.links = {{"n1", "n2", 1e-4, 1e9, evidence}};
  profile.layers = {{"cpu", "model", layer, 2, 0.1, 0.2, 0, 0.01, 0, evidence}};
  return profile;
}

FailureRecord SomeFailure(const std::string& text) {
  FailureRecord failure;
  failure.time = 1.9e9;
  failure.host = "n1";
  failure.kind = FailureKind::kNodeSilent;
  failure.blamed = Blamed::kNode;
  failure.operation = failure.peer = failure.cause = text;
  return failure;
}

std::vector<NumberedEntry> SomeEntries(const std::string& text) {
  return {{1, std::vector<NodeRecord>{{"n1", "user", text, 2, 1, text}}},
          {2, PlanRecord{text, 2, 0.5, text}},
          {3, LaunchRecord{1, 1011, LaunchOutcome::kRetried, text}},
          {4, SomeFailure(text)},
          {5, MeasuredRecord{"alpha", SomeProfile(text)}},
          {6, SummaryRecord{}},
          {7, JobEnd{JobState::kFailed, 5, 1040, text}}};
}

/// With Ann's job, whose id is 1.
std::unique_ptr<Database> AnnsDatabase() {
  auto opened = OpenMemoryDatabase(SchemaMigrations());
  Require(opened.has_value());
  Database& database = *opened->database;
  Require(WriteLedger(database, kAnn, {SomeJob(kSecret, kAnnsRun), SomeEntries(kSecret)}) == 7);
  return std::move(opened->database);
}

}  // namespace

void FuzzOne(std::string_view input) {
  static const auto database = AnnsDatabase();
  const auto request = ReadStoreRequest(input);
  if (!request) {
    Require(request.error().message.find('\n') == std::string::npos);
    return;
  }
  Require(ReadStoreRequest(ToText(*request)).has_value());
  if (const auto* hello = std::get_if<store_request::Hello>(&*request)) {
    const StoreAnswer answer = Greet(*hello);
    const auto* welcome = std::get_if<store_answer::Welcome>(&answer);
    Require(welcome == nullptr ||
            (welcome->protocol >= kOldestProtocol && welcome->protocol <= kNewestProtocol));
    return;
  }
  std::string text;
  try {
    StoreRequest prepared = *request;
    const Counted counted = input.size() % 2 == 0 ? Counted::kAll : Counted::kSeenBySlurm;
    PrepareRequest(prepared, counted);
    Caller bob{1001, "bob", false};
    if (input.size() % 4 < 2) bob.accounts = {"others"};
    Transaction undone(*database, Transaction::Kind::kReads);
    text = AnswerText(AnswerRequest(*database, bob, prepared, counted));
  } catch (const DatabaseError&) {
    return;  // such as a number that a column does not take
  }
  Require(text.find(kSecret) == std::string::npos);
  Require(ReadStoreAnswer(text).has_value());
}

std::vector<std::string> FuzzSeeds() {
  JobQuery every, named, users;
  every.all_users = true;
  named.all_users = true;
  named.ids = {{true, 1, std::nullopt}, {false, 7, std::nullopt}, {false, 7, 1}};
  named.states = {JobState::kFailed, JobState::kRunning};
  users.users = {"ann", "bob"};
  users.start = 1, users.end = 2e9;
  std::vector<StoreRequest> requests = {
      store_request::Hello{},
      store_request::BeginJob{SomeJob("bobs", std::string(32, 'b'))},
      store_request::BeginJob{SomeJob("bobs", kAnnsRun)},
      store_request::FoundOut{1, JobState::kFailed, {JobState::kLost, 1, "gone", "FAILED"}},
      store_request::TakeIn{{SomeJob("bobs", std::string(32, 'b')), SomeEntries("bobs")}},
      store_request::TakeIn{{SomeJob("bobs", kAnnsRun), SomeEntries("bobs")}},
      store_request::FindJobs{every},
      store_request::FindJobs{named},
      store_request::FindJobs{users},
      store_request::FailuresOf{1},
      store_request::LaunchesOf{1},
      store_request::SaveMeasurements{{"alpha", SomeProfile("bobs")}},
      store_request::ProfileOf{{"alpha", {"n1", "n2"}, {"cpu"}, "model", 1.9e9}},
      store_request::MeasurementsOf{"alpha"},
      store_request::MeasuredClusters{}};
  for (const NumberedEntry& entry : SomeEntries("bobs"))
    requests.push_back(store_request::Record{1, entry});
  std::vector<std::string> seeds;
  for (const StoreRequest& request : requests) seeds.push_back(ToText(request));
  return seeds;
}

}  // namespace adaptive_train::fuzz
