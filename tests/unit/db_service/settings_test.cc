// The settings file, reading it again, and the figures by HTTP.
#include <cstdio>
#include <fstream>
#include <regex>
#include <thread>

#include "db/database.h"
#include "tests/unit/db_service/service_fixture.h"

namespace adaptive_train::settings_test {
namespace {

using ::testing::AllOf;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::StartsWith;

class SettingsTest : public ServiceTest {
 protected:
  void Write(const std::string& settings) { std::ofstream(folder_ / "settings.toml") << settings; }
  std::vector<std::string> FromFile() const {
    return {"--settings", (folder_ / "settings.toml").string()};
  }
  int ExitWith(const std::vector<std::string>& more) {
    Spawn(more);
    return WEXITSTATUS(AwaitEnd());
  }
  void Reload() {
    ::kill(service_, SIGHUP);
    ASSERT_EQ(NextState(), "RELOADING=1");
    ASSERT_EQ(NextState(), "READY=1");
  }
  std::string JobsSeenBy(uid_t uid) const {
    return As(uid, [](RemoteStore& store) {
      const auto rows = store.FindJobs(EveryJob());
      return rows ? std::to_string(rows->size()) : rows.error().message;
    });
  }
};

TEST_F(SettingsTest, WhatIsWrongInTheFileIsRefused) {
  asks_slurm_ = true;  // a word on the command line would count more
  EXPECT_EQ(ExitWith({"--settings", (folder_ / "none.toml").string()}), 2);
  for (const char* const wrong :
       {"colour = 'red'\n", "operators = ['no-such-user-here']\n", "purge-jobs-after = 29\n",
        "coordinators = ['physics']\n", "coordinators = [':0']\n", "ask-slurm = 'perhaps'\n",
        "metrics-listen = '0.0.0.0:9464'\n", "metrics-listen = 'localhost:9464'\n",
        "metrics-listen = '127.0.0.1'\n", "operators = ['root']\noperators = ['slurm']\n",
        "mib-a-day = 1.5\n", "[operators]\nroot = true\n"}) {
    Write(wrong);
    EXPECT_EQ(ExitWith(FromFile()), 2) << wrong;
  }
}

TEST_F(SettingsTest, TheShippedFileNamesOptionsThatThereAre) {
  const std::string program = ADAPTIVE_TRAIND;
  FILE* const asked = ::popen((program + " --help").c_str(), "r");
  std::string help;
  for (char line[4096]; std::fgets(line, sizeof line, asked) != nullptr;) help += line;
  ASSERT_EQ(::pclose(asked), 0);
  std::ifstream file(SOURCE_DIR "/packaging/systemd/adaptive-traind.toml");
  const std::regex setting("# ([a-z][a-z-]*) = .*");
  int settings = 0;
  for (std::string line; std::getline(file, line);) {
    std::smatch found;
    if (!std::regex_match(line, found, setting)) continue;
    ++settings;
    EXPECT_THAT(help, HasSubstr("--" + found[1].str() + " ")) << line;
  }
  EXPECT_GE(settings, 8);
}

TEST_F(SettingsTest, WhetherSlurmIsAskedIsSaidByAWord) {
  asks_slurm_ = true;
  for (const char* const word : {"true", "false"}) {
    Write(std::string("ask-slurm = ") + word + "\n");
    Start(FromFile());
    EXPECT_EQ(End(SIGTERM), 0);
    EXPECT_EQ(NextState(), "STOPPING=1");
  }
}

TEST_F(SettingsTest, ASignalMakesItReadWhoMaySeeWhatAgain) {
  Write("operators = ['" + std::to_string(kBob) + "', 'root']\n");
  Start(FromFile());
  ASSERT_TRUE(Connected().BeginJob(SampleJob()));
  EXPECT_EQ(JobsSeenBy(kBob), "1");
  EXPECT_EQ(JobsSeenBy(kAnn), "0");
  Write("operators = ['root']\ncoordinators = ['physics:" + std::to_string(kBob) + "']\n");
  Reload();
  EXPECT_EQ(JobsSeenBy(kBob), "0");
  Write("operators = ['" + std::to_string(kAnn) + "']\n");
  Reload();
  EXPECT_EQ(JobsSeenBy(kAnn), "1");
  Write("operators = [\n  # all of them\n  'root',  # but\n]  # nobody else\n");
  Reload();
  EXPECT_EQ(JobsSeenBy(kAnn), "0");
  Write("operators = ['" + std::to_string(kAnn) + "']\ncoordinators = []\n");
  Reload();
  EXPECT_EQ(JobsSeenBy(kAnn), "1");
  Write("operators = [");
  Reload();
  EXPECT_EQ(JobsSeenBy(kAnn), "1") << "settings that cannot be read change nothing";
  // Who was connected before is asked for his rights with each request.
  RemoteStore connected = Connected();
  ASSERT_TRUE(connected.FindJobs(EveryJob()));
  Write("operators = []\n");
  Reload();
  EXPECT_EQ(JobsSeenBy(kAnn), "0");
  EXPECT_EQ(connected.FindJobs(EveryJob()).value().size(), 1u) << "his own";
  EXPECT_EQ(End(SIGTERM), 0);
}

TEST_F(SettingsTest, RetentionCountsFromTheReloadOn) {
  Write("");
  Start(FromFile());
  ASSERT_TRUE(Connected().BeginJob(SampleJob()));  // of 1970
  const auto jobs = [&] { return Database(Location().path).Number("SELECT count(*) FROM jobs"); };
  EXPECT_EQ(jobs(), 1);
  Write("purge-jobs-after = 30\n");
  Reload();
  for (int i = 0; i < 600 && jobs() > 0; ++i)
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  EXPECT_EQ(jobs(), 0);
}

/// What a server at the loopback's port says to `request`, until it closes the connection.
std::string Answer(int port, const std::string& request) {
  const int socket = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<std::uint16_t>(port));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  std::string said;
  if (::connect(socket, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0) {
    ::send(socket, request.data(), request.size(), MSG_NOSIGNAL);
    char part[4096];
    for (ssize_t got = 0; (got = ::recv(socket, part, sizeof part, 0)) > 0;)
      said.append(part, static_cast<std::size_t>(got));
  } else {
    said = std::strerror(errno);
  }
  ::close(socket);
  return said;
}

TEST_F(SettingsTest, FiguresAreThereByHttp) {
  const int port = FreePort();
  Start({"--metrics-listen", "127.0.0.1:" + std::to_string(port)});
  ASSERT_TRUE(Connected().BeginJob(SampleJob()));
  const std::string host = "Host: localhost\r\n\r\n";
  EXPECT_THAT(
      Answer(port, "GET /metrics HTTP/1.1\r\n" + host),
      AllOf(StartsWith("HTTP/1.1 200 OK\r\n"),
            HasSubstr("Content-Type: application/openmetrics-text; version=1.0.0; charset=utf-8"),
            HasSubstr("adaptive_traind_requests_total{request=\"begin_job\",outcome=\"answered\"} "
                      "1\n"),
            EndsWith("\n# EOF\n")));
  EXPECT_THAT(Answer(port, "GET / HTTP/1.1\r\n" + host), StartsWith("HTTP/1.1 404"));
  EXPECT_THAT(Answer(port, "DELETE /metrics HTTP/1.1\r\n" + host), StartsWith("HTTP/1.1 405"));
  EXPECT_EQ(Answer(port, "no request\r\n\r\n"), "");
  EXPECT_EQ(Answer(port, "GET /metrics HTTP/1.1\r\nX: " + std::string(20000, 'x') + "\r\n\r\n"),
            "");
}

TEST_F(SettingsTest, WhoSaysNothingKeepsNobodyFromTheFigures) {
  const int port = FreePort();
  Start({"--metrics-listen", "127.0.0.1:" + std::to_string(port)});
  std::vector<std::thread> silent;
  for (int i = 0; i < 20; ++i) silent.emplace_back([&] { EXPECT_EQ(Answer(port, ""), ""); });
  EXPECT_THAT(Answer(port, "GET /metrics HTTP/1.1\r\nHost: a\r\n\r\n"), StartsWith("HTTP/1.1 200"));
  for (std::thread& one : silent) one.join();  // each has its five seconds
  EXPECT_TRUE(Connected().MeasuredClusters()) << "the store answers as ever";
  EXPECT_EQ(End(SIGTERM), 0);
  EXPECT_THAT(Answer(port, "GET /metrics HTTP/1.1\r\n\r\n"), HasSubstr("refused"));
}

TEST_F(SettingsTest, APortThatIsTakenIsToldAtTheStart) {
  const int port = FreePort();
  Start({"--metrics-listen", "127.0.0.1:" + std::to_string(port)});
  const pid_t first = service_;
  EXPECT_EQ(ExitWith({"--metrics-listen", "127.0.0.1:" + std::to_string(port), "--database",
                      (folder_ / "other.db").string(), "--socket", (folder_ / "other").string()}),
            6);
  service_ = first;
}

}  // namespace
}  // namespace adaptive_train::settings_test
