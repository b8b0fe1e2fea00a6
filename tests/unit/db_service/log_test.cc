// What the journal gets of a line of the service's log.
#include "db/service/log.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

namespace adaptive_train::log_test {
namespace {

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

}  // namespace
}  // namespace adaptive_train::log_test
