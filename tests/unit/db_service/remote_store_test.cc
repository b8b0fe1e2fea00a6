// Through the service all calls do what they do with a file; a service that hangs, ends or speaks
// another language costs no more than was allowed.
#include "db/remote_store.h"

#include <chrono>
#include <cmath>

#include "core/seconds.h"
#include "db/known_store.h"
#include "db/ledger_file.h"
#include "db/ledger_list.h"
#include "tests/unit/db_service/service_fixture.h"

namespace adaptive_train::remote_store_test {
namespace {

using std::chrono::milliseconds;
using ::testing::HasSubstr;

class RemoteStoreTest : public ServiceTest {
 protected:
  RemoteStoreTest() { setenv("XDG_STATE_HOME", (folder_ / "state").c_str(), 1); }
  ~RemoteStoreTest() override { unsetenv("XDG_STATE_HOME"); }

  StoreChoice Named(bool required) const {
    return {"unix:" + Service().path.string(), "--store", required};
  }
};

/// The service takes no times of the future, and forgets old failures.
const double kLately = std::floor(EpochSecondsNow()) - 60;

Profile SomeFigures() {
  Profile profile;
  const Evidence evidence{2, 0.05, kLately};
  profile.links = {{"n1", "n2", 1e-4, 1e9, evidence}};
  profile.devices.push_back({"n1", "cpu", 1e11, 1e10, evidence});
  profile.layers = {{"cpu", "model", "block", 2, 0.1, 0.2, 0, 0.01, 0, evidence}};
  return profile;
}

/// Calls everything; what comes back is told in words.
void UseAll(ProfileStore& store) {
  JobRecord job = SampleJob("odd \"name\"\n");
  job.uid = NewRunUid();
  job.array_job_id = 7, job.array_task_id = 3;
  const auto id = store.BeginJob(job);
  ASSERT_TRUE(id) << id.error().message;
  FailureRecord failure;
  failure.time = kLately;
  failure.host = "n1";
  failure.kind = FailureKind::kNodeSilent;
  failure.blamed = Blamed::kNode;
  failure.cause = "silent";
  SummaryRecord summary;
  summary.steps = 12;
  summary.final_loss = std::nan("");
  summary.mfu = 0.25;
  const std::vector<LedgerEntry> entries = {
      std::vector<NodeRecord>{{"n1", "user", "cpu", 2, 1 << 30, "{}"},
                              {"n2", "user", "", 1, 1, ""}},
      PlanRecord{"{}", 2, 0.5, "even"},
      LaunchRecord{1, 1011, LaunchOutcome::kRetried, "late"},
      failure,
      MeasuredRecord{"alpha", SomeFigures()},
      summary,
      JobEnd{JobState::kCancelled, 130, 1040, "stopped"}};
  std::int64_t number = 0;
  for (const LedgerEntry& entry : entries) {
    const NumberedEntry numbered{++number, entry};
    for (int twice = 0; twice < 2; ++twice) {  // the second time it is there already
      const auto done = store.Record(*id, numbered);
      ASSERT_TRUE(done) << done.error().message;
    }
  }
  ASSERT_TRUE(store.FoundOut(*id, JobState::kCancelled,
                             {JobState::kTimeout, 1050, "the time limit", "TIMEOUT"}));
  ASSERT_TRUE(store.SaveMeasurements("beta", SomeFigures()));

  JobQuery query = EveryJob();
  query.ids = {{false, 7, 3}};
  query.states = {JobState::kTimeout};
  query.start = 1000, query.end = 2000;
  const auto rows = store.FindJobs(query);
  ASSERT_TRUE(rows) << rows.error().message;
  ASSERT_EQ(rows->size(), 1u);
  const JobRow& row = rows->front();
  EXPECT_EQ(row.id, *id);
  EXPECT_EQ(row.job.uid, job.uid);
  EXPECT_EQ(row.job.name, "odd \"name\"\n");
  EXPECT_EQ(row.job.start_time, 1010.5);
  EXPECT_EQ(row.job.launcher, ThisProcess());
  EXPECT_EQ(row.state, JobState::kTimeout);
  EXPECT_EQ(row.slurm_state, "TIMEOUT");
  EXPECT_EQ(row.end_time, 1040);
  EXPECT_EQ(row.exit_code, 130);
  EXPECT_EQ(row.ranks, 2);
  EXPECT_EQ(row.nodes, (std::vector<std::string>{"n1", "n2"}));
  EXPECT_EQ(row.launch_retries, 1);
  ASSERT_TRUE(row.summary);
  EXPECT_EQ(row.summary->steps, 12);
  EXPECT_EQ(row.summary->final_loss, std::nullopt);
  EXPECT_EQ(row.summary->mfu, 0.25);
  const auto failures = store.FailuresOf(*id);
  ASSERT_TRUE(failures && failures->size() == 1);
  EXPECT_EQ(failures->front().kind, FailureKind::kNodeSilent);
  const auto launches = store.LaunchesOf(*id);
  ASSERT_TRUE(launches && launches->size() == 1);
  EXPECT_EQ(launches->front().reason, "late");
  EXPECT_EQ(store.MeasuredClusters().value(), (std::vector<std::string>{"alpha", "beta"}));
  EXPECT_EQ(store.MeasurementsOf("alpha").value().links, SomeFigures().links);
  const auto profile = store.ProfileOf({"alpha", {"n1", "n2"}, {"cpu"}, "model", kLately});
  ASSERT_TRUE(profile) << profile.error().message;
  EXPECT_EQ(profile->links, SomeFigures().links);
  EXPECT_EQ(profile->devices.front().product_flops, 1e11);
  ASSERT_EQ(profile->layers.size(), 1u);
  EXPECT_EQ(profile->layers.front().evidence.count, 4);  // by the run, and saved
  ASSERT_EQ(profile->nodes.size(), 1u);
  EXPECT_NEAR(profile->nodes.front().failures, 1, 1e-3);
}

TEST_F(RemoteStoreTest, EveryCallDoesWhatItDoesWithAFile) {
  Start();
  RemoteStore remote = Connected();
  UseAll(remote);
  auto file = FileStore::InMemory();
  ASSERT_TRUE(file);
  UseAll(*file);
}

TEST_F(RemoteStoreTest, WhatIsRefusedIsToldAndTheNextCallGoesOn) {
  Start();
  RemoteStore store = Connected();
  const auto refused = store.Record(99, {1, PlanRecord{}});
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().exit_code, ExitCode::kStore);
  EXPECT_EQ(refused.error().message, NameOf(Service()) + ": job 99 is not in the store");
  Profile unfounded = SomeFigures();
  unfounded.links.front().evidence.count = 0;
  EXPECT_FALSE(store.SaveMeasurements("alpha", unfounded));
  EXPECT_TRUE(store.MeasuredClusters().value().empty()) << "a refused request left a trace";
  EXPECT_TRUE(store.BeginJob(SampleJob()));
}

TEST_F(RemoteStoreTest, WithoutAServiceThereIsOneLine) {
  const auto none = RemoteStore::Open(Service());
  ASSERT_FALSE(none);
  EXPECT_EQ(none.error().exit_code, ExitCode::kStore);
  EXPECT_EQ(none.error().message, "profile store unix:" + Service().path.string() +
                                      ": cannot connect: No such file or directory");
  EXPECT_FALSE(OpenKnownStore(Named(true)));
  EXPECT_FALSE(ReadKnownStore(Named(true)));
  EXPECT_EQ(OpenKnownStore(Named(false)).value().trouble->message, none.error().message);
}

TEST_F(RemoteStoreTest, AHangingServiceCostsTheBudgetAndThenNothing) {
  Start();
  StoreOptions options;
  options.patience = std::chrono::hours(1);
  options.launch_budget = std::chrono::seconds(2);  // enough to connect and begin on a slow machine
  RemoteStore store = Connected(options);
  const auto id = store.BeginJob(SampleJob());
  ASSERT_TRUE(id) << id.error().message;
  ::kill(service_, SIGSTOP);
  const auto known = store.ProfileOf({});
  ASSERT_FALSE(known);
  EXPECT_THAT(known.error().message, HasSubstr("no answer in time"));
  options.patience = milliseconds(100);
  const auto another = RemoteStore::Open(Service(), options);  // it is connected, and not greeted
  ASSERT_FALSE(another);
  EXPECT_THAT(another.error().message, HasSubstr("no answer in time"));
  ::kill(service_, SIGCONT);
  EXPECT_FALSE(store.Record(*id, {1, PlanRecord{}})) << "late answers would be taken for others";
}

TEST_F(RemoteStoreTest, TheBudgetIsForTheLaunchAlone) {
  Start();
  StoreOptions options;
  options.patience = std::chrono::hours(1);
  options.launch_budget = std::chrono::minutes(1);
  RemoteStore store = Connected(options);
  const auto id = store.BeginJob(SampleJob());
  ASSERT_TRUE(id);
  ASSERT_TRUE(store.ProfileOf({}));
  ::kill(service_, SIGSTOP);
  std::thread resume([this] {
    std::this_thread::sleep_for(milliseconds(200));
    ::kill(service_, SIGCONT);
  });
  EXPECT_TRUE(store.Record(*id, {1, PlanRecord{}}));
  resume.join();
}

TEST_F(RemoteStoreTest, AServiceThatWasRestartedIsConnectedToAgain) {
  Start();
  RemoteStore store = Connected();
  const auto id = store.BeginJob(SampleJob());
  ASSERT_TRUE(id);
  End(SIGKILL);
  Start();
  const auto recorded = store.Record(*id, {1, PlanRecord{}});
  EXPECT_TRUE(recorded) << recorded.error().message;
  End(SIGKILL);
  EXPECT_FALSE(store.Record(*id, {2, PlanRecord{}}));
}

TEST_F(RemoteStoreTest, ALedgerIsTakenInOnceInSeveralParts) {
  Start();
  JobRecord job = SampleJob();
  job.uid = NewRunUid();
  job.launcher = ThisProcess();
  job.launcher->start_ticks += 1;  // certainly gone
  const auto path = folder_ / "ledger.jsonl";
  constexpr std::int64_t kPlans = 12;
  {
    LedgerFile file(job);
    ASSERT_TRUE(file.Open(path));
    for (std::int64_t number = 1; number <= kPlans; ++number)
      ASSERT_TRUE(file.Append({number, PlanRecord{std::string(1 << 20, 'p'), number, 0.5, ""}}));
  }
  ASSERT_TRUE(ListLedger(job.uid, path));
  {
    StoreOptions launching;
    launching.launch_budget = std::chrono::minutes(1);
    auto known = OpenKnownStore(Named(true), {path}, launching);
    ASSERT_TRUE(known) << known.error().message;
    EXPECT_THAT(known->notes.front(), HasSubstr("left for `adaptive-train jobs`"));
    EXPECT_TRUE(known->store->FindJobs(EveryJob()).value().empty());
  }
  for (int time = 0; time < 2; ++time) {
    auto known = OpenKnownStore(Named(true), {path});
    ASSERT_TRUE(known) << known.error().message;
    EXPECT_EQ(known->notes.size(), time == 0 ? 1u : 0u);
    if (time == 0) {
      EXPECT_THAT(known->notes.front(), HasSubstr("12 entries taken in"));
    }
    const auto rows = known->store->FindJobs(EveryJob()).value();
    ASSERT_EQ(rows.size(), 1u);
    EXPECT_EQ(rows.front().ranks, kPlans);
  }
  EXPECT_TRUE(ListedLedgers().empty());
}

/// Listens at the service's socket and gives the first who comes one answer, whatever it asks.
class OtherService {
 public:
  OtherService(const StoreLocation& location, std::string answer) {
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    std::strncpy(address.sun_path, location.path.c_str(), sizeof address.sun_path - 1);
    socket_ = ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (::bind(socket_, reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0 ||
        ::listen(socket_, 1) != 0)
      std::abort();
    thread_ = std::thread([this, answer = std::move(answer)] {
      const int client = ::accept(socket_, nullptr, nullptr);
      EXPECT_EQ(::write(client, answer.data(), answer.size()), static_cast<ssize_t>(answer.size()));
      char rest[4096];  // what it asks
      while (::read(client, rest, sizeof rest) > 0) continue;
      ::close(client);
    });
  }
  ~OtherService() {
    thread_.join();
    ::close(socket_);
  }
  OtherService(const OtherService&) = delete;
  OtherService& operator=(const OtherService&) = delete;

 private:
  int socket_ = -1;
  std::thread thread_;
};

TEST_F(RemoteStoreTest, AServiceThatSpeaksOtherwiseIsRefusedInOneLine) {
  const std::pair<std::string, std::string> kOthers[] = {
      {FrameOf(R"({"answer":"refused","content":"versions 7 to 9 are spoken here"})"),
       "versions 7 to 9 are spoken here"},
      {FrameOf(R"({"answer":"welcome","content":{"protocol":7,"program":"9.0"}})"),
       "does not keep to the protocol"},
      {FrameOf(R"({"answer":"jobs","content":[]})"), "does not keep to the protocol"},
      {FrameOf(R"({"answer":"song"})"), "there is no answer song in this version"},
      {FrameOf("[[["), "answer: "},
      {"SSH-2.0-OpenSSH", "its frame is too long"}};
  for (const auto& [answer, said] : kOthers) {
    std::filesystem::remove(Service().path);
    const OtherService other(Service(), answer);
    const auto refused = RemoteStore::Open(Service());
    ASSERT_FALSE(refused) << said;
    EXPECT_THAT(refused.error().message, HasSubstr(said));
    EXPECT_EQ(refused.error().message.find('\n'), std::string::npos);
  }
}

}  // namespace
}  // namespace adaptive_train::remote_store_test
