// The service's log: what the journal gets of a line, and when the program writes one.
#include "db/service/log.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <stdexcept>

#include "tests/unit/db_service/service_fixture.h"

namespace adaptive_train::log_test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

TEST(Log, ALineIsAMessageWithItsFields) {
  EXPECT_EQ(ToJournal({"stopping"}),
            "MESSAGE=stopping\nPRIORITY=6\nSYSLOG_IDENTIFIER=adaptive-traind\n");
  EXPECT_EQ(ToJournal({LOG_WARNING, "job 7: unknown", {{"SLURM_JOB_ID", "7"}}}),
            "MESSAGE=job 7: unknown\nPRIORITY=4\nSYSLOG_IDENTIFIER=adaptive-traind\n"
            "SLURM_JOB_ID=7\n");
}

TEST(Log, AValueOfLinesCannotPassForFields) {
  const std::string value = "x\nPRIORITY=0";
  const std::string length("\x0c\0\0\0\0\0\0\0", 8);
  EXPECT_EQ(ToJournal({LOG_ERR, value}),
            "MESSAGE\n" + length + value + "\nPRIORITY=3\nSYSLOG_IDENTIFIER=adaptive-traind\n");
}

TEST(Log, TheJournalIsKnownByItsDescriptor) {
  int ends[2];
  ASSERT_EQ(::pipe(ends), 0);
  struct stat info {};
  ASSERT_EQ(::fstat(ends[1], &info), 0);
  const std::string stream = fmt::format("{}:{}", info.st_dev, info.st_ino);
  EXPECT_TRUE(IsJournal(stream, ends[1]));
  EXPECT_FALSE(IsJournal(stream, STDIN_FILENO));
  EXPECT_FALSE(IsJournal("", ends[1]));
  EXPECT_FALSE(IsJournal(stream + "1", ends[1]));
  ::close(ends[0]);
  ::close(ends[1]);
  EXPECT_FALSE(IsJournal(stream, ends[1])) << "closed";
}

class LogTest : public ServiceTest {};

/// A small disk over a folder, which only this process and its children see.
class SmallDisk {
 public:
  explicit SmallDisk(std::filesystem::path folder) : folder_(std::move(folder)) {
    std::filesystem::create_directories(folder_);
    if (!OwnMounts() || ::mount("none", folder_.c_str(), "tmpfs", 0, "size=1m") != 0)
      throw std::runtime_error("cannot mount a small disk: these tests are to be run by root");
  }
  ~SmallDisk() { ::umount2(folder_.c_str(), MNT_DETACH); }
  SmallDisk(const SmallDisk&) = delete;
  SmallDisk& operator=(const SmallDisk&) = delete;

 private:
  const std::filesystem::path folder_;
};

/// Until it ends, stderr goes to a file.
class StderrIn {
 public:
  explicit StderrIn(const std::string& path) : own_(::dup(STDERR_FILENO)) {
    const int file = ::open(path.c_str(), O_CREAT | O_WRONLY | O_CLOEXEC, 0600);
    ::dup2(file, STDERR_FILENO);
    ::close(file);
  }
  ~StderrIn() {
    ::dup2(own_, STDERR_FILENO);
    ::close(own_);
  }
  StderrIn(const StderrIn&) = delete;
  StderrIn& operator=(const StderrIn&) = delete;

 private:
  const int own_;
};

TEST_F(LogTest, AFullDiskIsToldToUsersAndOnceInTheLog) {
  const SmallDisk disk(folder_ / "disk");
  const std::string log = folder_ / "log";
  {
    const StderrIn there(log);
    Start({"--database", folder_ / "disk" / "profiles.db"});
  }
  std::ofstream(folder_ / "disk" / "ballast") << std::string(100 * 1024, 'b');

  RemoteStore store = Connected();
  JobRecord job = SampleJob();
  job.config = std::string(8000, 'x');
  std::size_t stored = 0;
  while (stored < 1000 && store.BeginJob(job)) ++stored;
  EXPECT_GT(stored, 3U);
  for (int i = 0; i < 3; ++i) {
    const auto refused = store.BeginJob(job);
    ASSERT_FALSE(refused);
    EXPECT_THAT(refused.error().message, HasSubstr("the disk is full"));
  }
  const std::string told = BytesOf(log);
  const std::size_t at = told.find("the disk is full");
  ASSERT_NE(at, told.npos) << told;
  EXPECT_EQ(told.find("the disk is full", at + 1), told.npos) << "once a minute is enough";
  std::filesystem::remove(folder_ / "disk" / "ballast");
  EXPECT_TRUE(store.BeginJob(SampleJob()));
  EXPECT_EQ(store.FindJobs(EveryJob()).value().size(), stored + 1);
  EXPECT_EQ(End(SIGTERM), 0);
}

TEST_F(LogTest, TheJournalGetsLinesWithFields) {
  const SmallDisk run("/run");
  std::filesystem::create_directories("/run/systemd/journal");
  const int journal = ::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  const sockaddr_un address{AF_UNIX, "/run/systemd/journal/socket"};
  ASSERT_EQ(::bind(journal, reinterpret_cast<const sockaddr*>(&address), sizeof address), 0);
  {
    const StderrIn there(folder_ / "log");
    struct stat info {};
    ASSERT_EQ(::fstat(STDERR_FILENO, &info), 0);
    ::setenv("JOURNAL_STREAM", fmt::format("{}:{}", info.st_dev, info.st_ino).c_str(), 1);
    Start();
    ::unsetenv("JOURNAL_STREAM");
  }
  char text[512];
  const ssize_t got = ::recv(journal, text, sizeof text, MSG_DONTWAIT);
  ASSERT_GT(got, 0);
  EXPECT_THAT(std::string(text, static_cast<std::size_t>(got)),
              AllOf(HasSubstr("MESSAGE=" ADAPTIVE_TRAIN_VERSION " serves "),
                    HasSubstr("\nPRIORITY=6\nSYSLOG_IDENTIFIER=adaptive-traind\n")));
  EXPECT_EQ(BytesOf(folder_ / "log"), "");
  ::close(journal);  // a journal that is gone leaves lines to stderr
  EXPECT_EQ(End(SIGTERM), 0);
  EXPECT_THAT(BytesOf(folder_ / "log"), HasSubstr("<6>adaptive-traind: stopping: "));
}

}  // namespace
}  // namespace adaptive_train::log_test
