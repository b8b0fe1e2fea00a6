// Whole files: limits, kinds, and writes that leave either the old or the new content.
#include "core/file_io.h"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include <csignal>
#include <cstdlib>
#include <filesystem>

namespace adaptive_train::file_io_test {
namespace {

class FileIoTest : public testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = (std::filesystem::temp_directory_path() / "file_io_test.XXXXXX").string();
    ASSERT_NE(::mkdtemp(pattern.data()), nullptr);
    folder_ = pattern;
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }
  std::string folder_;
};

TEST_F(FileIoTest, WritesAndReadsBack) {
  const std::string path = folder_ + "/a";
  ASSERT_TRUE(WriteFile(path, "one"));
  ASSERT_TRUE(WriteFile(path, std::string("t\0wo", 4)));
  EXPECT_EQ(*ReadFile(path, 100), std::string("t\0wo", 4));
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder_), {}), 1);
}

TEST_F(FileIoTest, RefusesWhatIsTooLargeOrNoFile) {
  ASSERT_TRUE(WriteFile(folder_ + "/a", "12345"));
  EXPECT_TRUE(ReadFile(folder_ + "/a", 5));
  EXPECT_FALSE(ReadFile(folder_ + "/a", 4));
  EXPECT_FALSE(ReadFile(folder_ + "/none", 4));
  EXPECT_FALSE(ReadFile(folder_, 4));
  ASSERT_EQ(::mkfifo((folder_ + "/fifo").c_str(), 0600), 0);
  EXPECT_FALSE(ReadFile(folder_ + "/fifo", 4));  // must not hang
}

TEST_F(FileIoTest, AWriteThatFailsLeavesTheOldFileAndNothingElse) {
  const std::string path = folder_ + "/a";
  ASSERT_TRUE(WriteFile(path, "old"));
  // The disk is full for this process: files may not grow past 10 bytes.
  rlimit before{};
  ::getrlimit(RLIMIT_FSIZE, &before);
  rlimit small = before;
  small.rlim_cur = 10;
  ::signal(SIGXFSZ, SIG_IGN);
  ::setrlimit(RLIMIT_FSIZE, &small);
  auto written = WriteFile(path, std::string(100, 'x'));
  ::setrlimit(RLIMIT_FSIZE, &before);
  ASSERT_FALSE(written);
  EXPECT_EQ(*ReadFile(path, 100), "old");
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder_), {}), 1);
}

TEST(Printable, EscapesAndShortens) {
  EXPECT_EQ(Printable("a\nb\x1b[2J"), "a\\x0ab\\x1b[2J");
  EXPECT_EQ(Printable("abcdef", 3), "abc...");
}

}  // namespace
}  // namespace adaptive_train::file_io_test
