// The program: how it starts and ends, what a kill leaves, and what clients may take.

#include <atomic>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <set>
#include <thread>

#include "core/seconds.h"
#include "db/database.h"
#include "tests/unit/db_service/service_fixture.h"

namespace adaptive_train::adaptive_traind_test {
namespace {

using ::testing::HasSubstr;

class AdaptiveTraindTest : public ServiceTest {};

TEST_F(AdaptiveTraindTest, ASignalEndsItInOrder) {
  Start();
  RemoteStore idle = Connected(), store = Connected();
  ASSERT_TRUE(store.BeginJob(SampleJob()));
  EXPECT_EQ(End(SIGTERM), 0);
  EXPECT_EQ(NextState(), "STOPPING=1");
  EXPECT_FALSE(std::filesystem::exists(Service().path));
  EXPECT_FALSE(std::filesystem::exists(Location().path.string() + "-wal")) << "a log is left";
  auto file = FileStore::Open(Location());
  ASSERT_TRUE(file) << file.error().message;
  EXPECT_EQ(file->FindJobs(EveryJob()).value().size(), 1u);
  EXPECT_FALSE(store.BeginJob(SampleJob()));
}

TEST_F(AdaptiveTraindTest, RequestsThatHaveComeAreAnsweredBeforeItEnds) {
  Start();
  std::vector<StoreConnection> connections;
  for (int i = 0; i < 8; ++i) connections.push_back(RawConnection(Service()));
  for (StoreConnection& one : connections) Said(one, ToText(store_request::Hello{}));
  std::vector<std::thread> asking;
  std::atomic<int> begun = 0;
  for (StoreConnection& one : connections) {
    asking.emplace_back([&] {
      JobRecord job = SampleJob();
      job.launcher = ThisProcess();
      while (Said(one, ToText(store_request::BeginJob{job})).find("\"number\"") !=
             std::string::npos)
        ++begun;
    });
  }
  while (begun < 20) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  EXPECT_EQ(End(SIGTERM), 0);
  for (std::thread& thread : asking) thread.join();
  auto file = FileStore::Open(Location());
  ASSERT_TRUE(file) << file.error().message;
  EXPECT_GE(file->FindJobs(EveryJob()).value().size(), static_cast<std::size_t>(begun));
}

TEST_F(AdaptiveTraindTest, ADatabaseOfANewerProgramIsRefusedAndLeftAsItIs) {
  ASSERT_TRUE(FileStore::Open(Location()));
  Database(Location().path).Run("PRAGMA user_version = 9999");
  Spawn();
  const int status = AwaitEnd();
  EXPECT_EQ(WEXITSTATUS(status), ToInt(ExitCode::kStore));
  EXPECT_EQ(Database(Location().path).Number("PRAGMA user_version"), 9999);
}

TEST_F(AdaptiveTraindTest, OfSnapshotsItKeepsWhatLasts) {
  Start();
  const auto taken_at = [](int second) {
    return std::vector<NodeRecord>{
        {"n1", "user", "cpu", 1, 1,
         R"({"name":"n1","taken_at":")" + std::to_string(second) + R"("})"}};
  };
  RemoteStore store = Connected();
  for (const int second : {1, 2}) {
    const auto job = store.BeginJob(SampleJob());
    ASSERT_TRUE(job && store.Record(*job, {1, taken_at(second)}));
  }
  RunLedger run{SampleJob(), {{1, taken_at(3)}}};
  run.job.uid = NewRunUid();
  ASSERT_EQ(store.TakeIn(run), 1);
  Database database(Location().path);
  EXPECT_EQ(database.Number("SELECT COUNT(*) FROM nodes"), 3);
  EXPECT_EQ(database.Number("SELECT COUNT(*) FROM snapshots"), 1);
  EXPECT_EQ(database.Text("SELECT text FROM snapshots"), R"({"name":"n1"})");
}

TEST_F(AdaptiveTraindTest, MetricsAreAFileThatAllMayRead) {
  const std::filesystem::path file = folder_ / "metrics.prom";
  Start({"--metrics", file.string()});
  ASSERT_TRUE(std::filesystem::exists(file)) << "from the start";
  EXPECT_EQ(std::filesystem::status(file).permissions(), std::filesystem::perms(0644));
  std::ifstream in(file);
  const std::string text(std::istreambuf_iterator<char>(in), {});
  EXPECT_THAT(text, ::testing::HasSubstr("# TYPE adaptive_traind_connections gauge\n"
                                         "adaptive_traind_connections 0\n"));
  EXPECT_THAT(text, ::testing::ContainsRegex("adaptive_traind_database_bytes [1-9][0-9]+\n"));
}

TEST_F(AdaptiveTraindTest, MetricsThatCannotBeWrittenStopNothing) {
  Start({"--metrics", (folder_ / "none" / "metrics.prom").string()});
  EXPECT_TRUE(Connected().BeginJob(SampleJob()));
}

TEST_F(AdaptiveTraindTest, TwoDoNotShareASocketAndALeftOneIsReplaced) {
  Start();
  const pid_t first = service_;
  Spawn();
  EXPECT_EQ(WEXITSTATUS(AwaitEnd()), 6);
  service_ = first;
  EXPECT_TRUE(Connected().MeasuredClusters()) << "the second took the first's socket away";
  End(SIGKILL);
  ASSERT_TRUE(std::filesystem::exists(Service().path));
  Start();
  EXPECT_TRUE(Connected().MeasuredClusters());
}

TEST_F(AdaptiveTraindTest, WhatCannotWorkIsRefusedAtTheStart) {
  const auto exit_code = [&](const std::vector<std::string>& more) {
    Spawn(more);
    return WEXITSTATUS(AwaitEnd());
  };
  EXPECT_EQ(exit_code({"--operators", "no-such-user-here"}), 2);
  EXPECT_EQ(exit_code({"--colour"}), 2);
  EXPECT_EQ(exit_code({"--purge-jobs-after", "29"}), 2);
  EXPECT_EQ(exit_code({"--purge-jobs-after", "soon"}), 2);
  EXPECT_EQ(exit_code({"--purge-figures-after", "29"}), 2);
  EXPECT_EQ(exit_code({"--purge-failures-after", "29"}), 2);
  std::ofstream(folder_ / "file") << "text";
  EXPECT_EQ(exit_code({"--socket", (folder_ / "file").string()}), 6);
  EXPECT_TRUE(std::filesystem::is_regular_file(folder_ / "file"));
  EXPECT_EQ(exit_code({"--socket", "/" + std::string(200, 's')}), 6);
  EXPECT_EQ(exit_code({"--database", folder_.string()}), 6);
}

/// Begins jobs until the service is gone. Tells the id of each that was acknowledged.
[[noreturn]] void BeginUntilKilled(const StoreLocation& service, int told) {
  alarm(60);
  auto store = RemoteStore::Open(service);
  JobRecord job = SampleJob();
  job.config = std::string(9000, 'c');
  while (store) {
    const auto id = store->BeginJob(job);
    if (!id || write(told, &*id, sizeof *id) != sizeof *id) break;
  }
  _exit(0);
}

TEST_F(AdaptiveTraindTest, AKillAtAnyMomentLosesNothingThatWasAcknowledged) {
  const char* asked = std::getenv("ADAPTIVE_TRAIN_KILLS");
  const int kills = asked == nullptr ? 8 : std::atoi(asked);
  constexpr int kClients = 3;
  std::set<std::int64_t> acknowledged;
  for (int round = 0; round < kills; ++round) {
    Start();
    int told[2];
    ASSERT_EQ(pipe(told), 0);
    std::vector<pid_t> clients;
    for (int i = 0; i < kClients; ++i) {
      clients.push_back(fork());
      if (clients.back() == 0) BeginUntilKilled(Service(), told[1]);
    }
    close(told[1]);
    std::int64_t id = 0;
    ASSERT_EQ(read(told[0], &id, sizeof id), static_cast<ssize_t>(sizeof id));
    acknowledged.insert(id);
    std::this_thread::sleep_for(std::chrono::microseconds(round * 977 % 30000));
    End(SIGKILL);
    while (read(told[0], &id, sizeof id) == sizeof id) acknowledged.insert(id);
    close(told[0]);
    for (const pid_t client : clients) waitpid(client, nullptr, 0);
  }
  auto file = FileStore::Open(Location());  // runs quick_check
  ASSERT_TRUE(file) << file.error().message;
  const auto rows = file->FindJobs(EveryJob());
  ASSERT_TRUE(rows) << rows.error().message;
  for (const JobRow& row : *rows) {
    EXPECT_EQ(row.job.config.size(), 9000u);
    acknowledged.erase(row.id);
  }
  EXPECT_TRUE(acknowledged.empty()) << acknowledged.size() << " acknowledged jobs are gone";
}

TEST_F(AdaptiveTraindTest, IdleAndSlowConnectionsHarmNobody) {
  RaiseFileLimit();
  Start();
  std::vector<RemoteStore> idle;
  for (int i = 0; i < 500; ++i) idle.push_back(Connected());
  std::vector<int> slow;
  for (int i = 0; i < 100; ++i) {
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    std::strncpy(address.sun_path, Service().path.c_str(), sizeof address.sun_path - 1);
    slow.push_back(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
    ASSERT_EQ(::connect(slow.back(), reinterpret_cast<const sockaddr*>(&address), sizeof address),
              0);
    // Nothing, a part of a length, or a length without its text.
    const std::string begun =
        std::string("\0\1\0\0{", 5).substr(0, static_cast<std::size_t>(i) % 6);
    ASSERT_EQ(::write(slow.back(), begun.data(), begun.size()), static_cast<ssize_t>(begun.size()));
  }
  const auto use = [](RemoteStore& store) -> std::string {
    for (int i = 0; i < 20; ++i) {
      if (const auto id = store.BeginJob(SampleJob()); !id) return id.error().message;
      if (const auto rows = store.FindJobs(EveryJob()); !rows) return rows.error().message;
    }
    return "served";
  };
  EXPECT_EQ(As(kAnn, use), "served");
  RemoteStore own = Connected();
  EXPECT_EQ(use(own), "served");
  EXPECT_EQ(use(idle.front()), "served");
  for (const int socket : slow) ::close(socket);
}

TEST_F(AdaptiveTraindTest, AUserWhoHasUsedUpHisDayIsToldAndOthersAreNot) {
  Start({"--mib-a-day", "1"});
  const auto fill = [](RemoteStore& store) -> std::string {
    JobRecord job = SampleJob();
    job.config = std::string(300'000, 'c');
    for (int i = 0; i < 5; ++i)
      if (const auto id = store.BeginJob(job); !id) return id.error().message;
    return "never refused";
  };
  EXPECT_THAT(As(kAnn, fill), HasSubstr("you have sent 1 MiB of requests within a day"));
  // Also by another connection; but nobody else.
  EXPECT_THAT(As(kAnn, fill), HasSubstr("you have sent 1 MiB of requests within a day"));
  RemoteStore own = Connected();
  EXPECT_TRUE(own.BeginJob(SampleJob()));
}

TEST_F(AdaptiveTraindTest, LongRequestsOfOneUserHoldUpNoOther) {
  Start();
  // Each of these looks for four hundred million links, until it is interrupted after ten seconds.
  std::vector<std::unique_ptr<ChildProcess>> busy;
  ProfileQuery query{"alpha", {}, {}, "", 1.9e9};
  for (int i = 0; i < 20'000; ++i) query.nodes.push_back("n" + std::to_string(i));
  for (int client = 0; client < 12; ++client)
    busy.push_back(std::make_unique<ChildProcess>([this, query]() -> std::string {
      if (::setgid(kAnn) != 0 || ::setuid(kAnn) != 0) return "not root";
      RemoteStore store = Connected({std::chrono::seconds(3), true});
      const auto profile = store.ProfileOf(query);
      return profile ? "answered" : profile.error().message;
    }));
  std::this_thread::sleep_for(std::chrono::seconds(1));
  RemoteStore other = Connected();
  const auto began = std::chrono::steady_clock::now();
  for (int i = 0; i < 20; ++i) EXPECT_TRUE(other.FindJobs(EveryJob()));
  EXPECT_LT(std::chrono::steady_clock::now() - began, std::chrono::seconds(3));
  for (const auto& client : busy) EXPECT_THAT(client->Outcome(), HasSubstr("no answer in time"));
}

TEST_F(AdaptiveTraindTest, AnswersThatNobodyTakesHaveAShareToo) {
  RaiseFileLimit();
  Start();
  RemoteStore store = Connected({std::chrono::seconds(60), true});
  JobRecord job = SampleJob();
  job.config = std::string(6 << 20, 'c');
  ASSERT_TRUE(store.BeginJob(job));
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::strncpy(address.sun_path, Service().path.c_str(), sizeof address.sun_path - 1);
  std::vector<int> lazy;
  const std::string asked = FrameOf(ToText(store_request::Hello{})) +
                            FrameOf(ToText(store_request::FindJobs{EveryJob()}));
  const auto ask_and_take_nothing = [&] {
    lazy.push_back(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
    return ::connect(lazy.back(), reinterpret_cast<const sockaddr*>(&address), sizeof address) ==
               0 &&
           ::send(lazy.back(), asked.data(), asked.size(), 0) == static_cast<ssize_t>(asked.size());
  };
  for (int i = 0; i < 14; ++i) ASSERT_TRUE(ask_and_take_nothing());
  std::string said;
  for (int i = 0; i < 200 && said.find("too many large answers at once") == said.npos; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    const auto rows = store.FindJobs(EveryJob());
    said = rows ? "answered" : rows.error().message;
    // It may have had a share itself when the others asked.
    if (rows && i % 10 == 9) {
      ASSERT_TRUE(ask_and_take_nothing());
    }
  }
  EXPECT_THAT(said, HasSubstr("too many large answers at once"));
  for (const int socket : lazy) ::close(socket);
  for (int i = 0; i < 200 && said != "answered"; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    said = store.FindJobs(EveryJob()) ? "answered" : "refused";
  }
  EXPECT_EQ(said, "answered");
}

TEST_F(AdaptiveTraindTest, WhatWasAcknowledgedIsSeenByTheNextRequest) {
  Start();
  std::vector<std::unique_ptr<ChildProcess>> clients;
  for (int client = 0; client < 8; ++client) {
    clients.push_back(std::make_unique<ChildProcess>([this]() -> std::string {
      RemoteStore store = Connected();
      JobQuery query;
      for (int i = 0; i < 60; ++i) {
        const auto id = store.BeginJob(SampleJob());
        if (!id) return id.error().message;
        query.all_users = true;
        query.ids = {{true, *id, std::nullopt}};
        const auto rows = store.FindJobs(query);
        if (!rows) return rows.error().message;
        if (rows->size() != 1) return "job " + std::to_string(*id) + " is not seen";
      }
      return "all seen";
    }));
  }
  for (const auto& client : clients) EXPECT_EQ(client->Outcome(), "all seen");
}

TEST_F(AdaptiveTraindTest, WhoConnectsTooOftenLosesOwnIdleConnectionsFirst) {
  RaiseFileLimit();
  Start();
  const std::string said = As(kAnn, [&](RemoteStore& first) -> std::string {
    std::vector<RemoteStore> more;
    for (int i = 0; i < 520; ++i) {
      auto store = RemoteStore::Open(Service());
      if (!store) return store.error().message;
      more.push_back(std::move(*store));
    }
    // The first has lost its connection and makes a new one.
    const auto id = first.BeginJob(SampleJob());
    return id ? "served" : id.error().message;
  });
  EXPECT_EQ(said, "served");
  RemoteStore own = Connected();
  EXPECT_TRUE(own.BeginJob(SampleJob()));
}

TEST_F(AdaptiveTraindTest, OldAndNewVersionsAgreeOnWhatBothSpeak) {
  Start();
  StoreConnection newer = RawConnection(Service());
  EXPECT_THAT(
      Said(newer, R"({"request":"hello","oldest":1,"newest":99,"program":"9","mood":"new"})"),
      HasSubstr("\"protocol\":1"));
  EXPECT_THAT(Said(newer, R"({"request":"sing","song":"new"})"),
              HasSubstr("there is no request sing in this version"));
  EXPECT_THAT(Said(newer, R"({"request":"clusters","of":"members that are not known"})"),
              HasSubstr("\"answer\":\"clusters\""));
  EXPECT_THAT(Said(newer, ToText(store_request::Hello{})), HasSubstr("says hello once"));

  StoreConnection foreign = RawConnection(Service());
  EXPECT_THAT(Said(foreign, R"({"request":"hello","oldest":7,"newest":9,"program":"9"})"),
              HasSubstr("speaks versions 1 to 1 of its protocol, and you speak 7 to 9"));
  EXPECT_THAT(Said(foreign, ToText(store_request::Hello{})), HasSubstr("the connection is lost"));

  StoreConnection rude = RawConnection(Service());
  EXPECT_THAT(Said(rude, ToText(store_request::MeasuredClusters{})),
              HasSubstr("a connection begins with hello"));
  EXPECT_THAT(Said(rude, ToText(store_request::Hello{})), HasSubstr("the connection is lost"));
}

TEST_F(AdaptiveTraindTest, AFrameThatIsTooLongIsRefusedBeforeItComes) {
  Start();
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::strncpy(address.sun_path, Service().path.c_str(), sizeof address.sun_path - 1);
  const int socket = ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  ASSERT_EQ(::connect(socket, reinterpret_cast<const sockaddr*>(&address), sizeof address), 0);
  ASSERT_EQ(::write(socket, "\x7f\xff\xff\xff", 4), 4);
  std::string said;
  char text[4096];
  for (ssize_t got = 0; (got = ::read(socket, text, sizeof text)) > 0;)
    said.append(text, static_cast<std::size_t>(got));
  EXPECT_THAT(said, HasSubstr("a request of 2147483647 bytes; at most 16777216 are allowed"));
  ::close(socket);
}

TEST_F(AdaptiveTraindTest, AStoreThatAnotherProcessHasLockedIsToldAndComesBack) {
  Start();
  RemoteStore store = Connected({std::chrono::minutes(1), true});
  Database other(Location().path.string());
  other.Run("BEGIN IMMEDIATE");
  EXPECT_TRUE(store.FindJobs(EveryJob())) << "readers wait for no writer";
  const auto refused = store.BeginJob(SampleJob());
  ASSERT_FALSE(refused);
  EXPECT_THAT(refused.error().message, HasSubstr("another process has locked the store"));
  other.Run("ROLLBACK");
  EXPECT_TRUE(store.BeginJob(SampleJob()));
}

}  // namespace
}  // namespace adaptive_train::adaptive_traind_test
