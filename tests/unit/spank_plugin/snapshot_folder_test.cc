// Snapshots on the file system: who may read them, and which places are refused.
#include "spank_plugin/snapshot_folder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <sstream>

#include "tests/unit/spank_plugin/temporary_folder.h"

namespace adaptive_train::plugin::snapshot_folder_test {
namespace {

using testing::HasSubstr;
namespace fs = std::filesystem;

class SnapshotFolder : public testing::Test {
 protected:
  std::string Root() const { return folder_.Path() + "/adaptive-train"; }
  std::string File() const { return Root() + "/7/node.json"; }

  static std::string Read(const std::string& path) {
    std::ostringstream text;
    text << std::ifstream(path).rdbuf();
    return text.str();
  }
  static unsigned Mode(const std::string& path) {
    struct stat info {};
    return ::lstat(path.c_str(), &info) == 0 ? info.st_mode & 07777U : 0;
  }

  TemporaryFolder folder_;
};

TEST_F(SnapshotFolder, KeepsASnapshotForAllToRead) {
  const mode_t before = ::umask(077);
  const auto written = WriteSnapshot(Root(), 7, "text\n");
  ::umask(before);
  ASSERT_TRUE(written) << written.error().message;
  EXPECT_EQ(Read(File()), "text\n");
  EXPECT_EQ(Mode(Root()), 0755U);
  EXPECT_EQ(Mode(Root() + "/7"), 0755U);
  EXPECT_EQ(Mode(File()), 0644U);
  EXPECT_EQ(std::distance(fs::directory_iterator(Root() + "/7"), {}), 1);
}

TEST_F(SnapshotFolder, ReplacesAnOlderOneAndWhatAKilledPrologLeft) {
  ASSERT_TRUE(WriteSnapshot(Root(), 7, "old"));
  folder_.Write("adaptive-train/7/.node.json.new", "half");
  ASSERT_TRUE(WriteSnapshot(Root(), 7, "new"));
  EXPECT_EQ(Read(File()), "new");
  EXPECT_FALSE(fs::exists(Root() + "/7/.node.json.new"));
}

TEST_F(SnapshotFolder, RemovesOneJobAndNothingElse) {
  ASSERT_TRUE(WriteSnapshot(Root(), 7, "seven"));
  ASSERT_TRUE(WriteSnapshot(Root(), 77, "seventy-seven"));
  ASSERT_TRUE(RemoveSnapshot(Root(), 7));
  EXPECT_FALSE(fs::exists(Root() + "/7"));
  EXPECT_EQ(Read(Root() + "/77/node.json"), "seventy-seven");
  EXPECT_TRUE(RemoveSnapshot(Root(), 7)) << "a second time";
}

TEST_F(SnapshotFolder, RemovesNothingWhereThereIsNothing) {
  EXPECT_TRUE(RemoveSnapshot(Root(), 7));
  EXPECT_FALSE(fs::exists(Root()));
}

TEST_F(SnapshotFolder, LeavesWhatIsNotOurs) {
  ASSERT_TRUE(WriteSnapshot(Root(), 7, "text"));
  folder_.Write("adaptive-train/7/precious", "keep");
  const auto removed = RemoveSnapshot(Root(), 7);
  ASSERT_FALSE(removed);
  EXPECT_THAT(removed.error().message, HasSubstr(Root() + "/7"));
  EXPECT_EQ(Read(Root() + "/7/precious"), "keep");
}

/// The root is unusable: nothing is stored there, and since nothing can be ours, nothing is
/// removed.
void ExpectRefusedRoot(const std::string& root) {
  const auto written = WriteSnapshot(root, 7, "text");
  ASSERT_FALSE(written);
  EXPECT_THAT(written.error().message, HasSubstr(root + ": "));
  EXPECT_TRUE(RemoveSnapshot(root, 7));
}

TEST_F(SnapshotFolder, RefusesALinkAsRoot) {
  folder_.Write("elsewhere/7/node.json", "theirs");
  fs::create_directory_symlink("elsewhere", Root());
  ExpectRefusedRoot(Root());
  EXPECT_EQ(Read(folder_.Path() + "/elsewhere/7/node.json"), "theirs");
}

TEST_F(SnapshotFolder, RefusesAFileAsRoot) {
  folder_.Write("adaptive-train", "a file");
  ExpectRefusedRoot(Root());
  EXPECT_EQ(Read(Root()), "a file");
}

TEST_F(SnapshotFolder, RefusesARootThatOthersMayWriteTo) {
  fs::create_directory(Root());
  for (const auto open : {fs::perms::group_write, fs::perms::others_write}) {
    fs::permissions(Root(), fs::perms::owner_all | open);
    ExpectRefusedRoot(Root());
  }
}

TEST_F(SnapshotFolder, RefusesALinkAsJobFolder) {
  ASSERT_TRUE(WriteSnapshot(Root(), 8, "eight"));
  folder_.Write("elsewhere/node.json", "theirs");
  fs::create_directory_symlink("../elsewhere", Root() + "/7");
  const auto written = WriteSnapshot(Root(), 7, "text");
  ASSERT_FALSE(written);
  EXPECT_THAT(written.error().message, HasSubstr(Root() + "/7: "));
  const auto removed = RemoveSnapshot(Root(), 7);
  ASSERT_FALSE(removed);
  EXPECT_THAT(removed.error().message, HasSubstr(Root() + "/7: "));
  EXPECT_EQ(Read(folder_.Path() + "/elsewhere/node.json"), "theirs");
}

TEST_F(SnapshotFolder, DoesNotFollowALinkAsSnapshot) {
  ASSERT_TRUE(WriteSnapshot(Root(), 7, "old"));
  folder_.Write("theirs", "theirs");
  for (const char* name : {"node.json", ".node.json.new"}) {
    fs::remove(Root() + "/7/" + name);
    fs::create_symlink("../../theirs", Root() + "/7/" + name);
  }
  ASSERT_TRUE(WriteSnapshot(Root(), 7, "new"));
  EXPECT_EQ(Read(folder_.Path() + "/theirs"), "theirs");
  EXPECT_FALSE(fs::is_symlink(File()));
  EXPECT_EQ(Read(File()), "new");
}

TEST_F(SnapshotFolder, AFolderInTheSnapshotsPlaceIsAnError) {
  fs::create_directories(File() + "/full");
  fs::permissions(Root(), fs::perms(0755));
  fs::permissions(Root() + "/7", fs::perms(0755));
  const auto written = WriteSnapshot(Root(), 7, "new");
  ASSERT_FALSE(written);
  EXPECT_THAT(written.error().message, HasSubstr(File()));
  EXPECT_FALSE(fs::exists(Root() + "/7/.node.json.new"));
}

}  // namespace
}  // namespace adaptive_train::plugin::snapshot_folder_test
