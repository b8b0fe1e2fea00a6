// Folders in shared memory: whose they are, when they go, and what is left alone.
#include "core/kept_folder.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <stdexcept>
#include <string>

namespace adaptive_train::kept_folder_test {
namespace {

namespace fs = std::filesystem;

class KeptFolderTest : public testing::Test {
 protected:
  KeptFolderTest() {
    std::string pattern = (fs::temp_directory_path() / "kept.XXXXXX").string();
    if (::mkdtemp(pattern.data()) == nullptr) throw std::runtime_error("cannot make a folder");
    root_ = pattern;
  }
  ~KeptFolderTest() override { fs::remove_all(root_); }

  std::string Make(const std::string& job, const std::string& node) {
    const std::string path = root_ + "/" + KeptFolderPrefix(::geteuid(), job, node) + "key";
    fs::create_directory(path);
    std::ofstream(path + "/attempt-1-rank-0-state-0") << "bytes";
    return path;
  }
  static void MakeOld(const std::string& path) {
    const timeval times[2] = {{1'000'000'000, 0}, {1'000'000'000, 0}};
    ASSERT_EQ(::utimes(path.c_str(), times), 0);
  }

  std::string root_;
};

TEST_F(KeptFolderTest, AJobsFoldersGoAndOthersStay) {
  const std::string own = Make("42", "n1"), other_node = Make("42", "n2"),
                    other = Make("421", "n1");
  ASSERT_TRUE(RemoveKeptFolders(root_, KeptFolderPrefix(::geteuid(), "42", "n1"), ::geteuid()));
  EXPECT_FALSE(fs::exists(own));
  EXPECT_TRUE(fs::exists(other_node));
  ASSERT_TRUE(RemoveKeptFolders(root_, KeptFolderPrefix(::geteuid(), "42", ""), ::geteuid()));
  EXPECT_FALSE(fs::exists(other_node));
  EXPECT_TRUE(fs::exists(other));
}

TEST_F(KeptFolderTest, LinksAreNotFollowedAndOthersFoldersAreLeft) {
  const fs::path outside = root_ + "/outside";
  fs::create_directory(outside);
  std::ofstream(outside / "file") << "precious";
  const std::string prefix = KeptFolderPrefix(::geteuid(), "7", "n1");
  fs::create_directory_symlink(outside, root_ + "/" + prefix + "link");
  const std::string folder = Make("7", "n1");
  fs::create_symlink(outside / "file", folder + "/link");
  fs::create_directory_symlink(outside, folder + "/folder");
  ASSERT_TRUE(RemoveKeptFolders(root_, prefix, ::geteuid()));
  EXPECT_FALSE(fs::exists(folder));
  EXPECT_TRUE(fs::exists(outside / "file"));
  const std::string others = Make("7", "n1");
  ASSERT_TRUE(RemoveKeptFolders(root_, prefix, ::geteuid() + 1));
  EXPECT_TRUE(fs::exists(others));
}

TEST_F(KeptFolderTest, AFolderInAFolderIsNotOursAndIsNamed) {
  const std::string folder = Make("7", "n1");
  fs::create_directory(folder + "/zz");
  std::ofstream(folder + "/zz/file") << "x";
  const auto removed =
      RemoveKeptFolders(root_, KeptFolderPrefix(::geteuid(), "7", "n1"), ::geteuid());
  ASSERT_FALSE(removed);
  EXPECT_NE(removed.error().message.find("/zz"), std::string::npos);
}

TEST_F(KeptFolderTest, WhatNobodyHoldsGoesWhenItIsOld) {
  const std::string young = Make("1", "n1"), old = Make("2", "n1"), held = Make("3", "n1");
  ::chmod(held.c_str(), 0700);
  const auto holder = KeptFolder::Hold(root_, fs::path(held).filename());
  ASSERT_TRUE(holder) << holder.error().message;
  MakeOld(old);
  MakeOld(held);
  ASSERT_TRUE(RemoveStaleKeptFolders(root_, std::chrono::hours(1)));
  EXPECT_TRUE(fs::exists(young));
  EXPECT_FALSE(fs::exists(old));
  EXPECT_TRUE(fs::exists(held));
}

TEST_F(KeptFolderTest, AFolderIsTheUsersAlone) {
  const auto folder = KeptFolder::Hold(root_, "own");
  ASSERT_TRUE(folder);
  struct stat info {};
  ASSERT_EQ(::stat(folder->path().c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0700U);
  ::chmod(folder->path().c_str(), 0750);
  EXPECT_FALSE(KeptFolder::Hold(root_, "own"));
  fs::create_directory_symlink(folder->path(), root_ + "/link");
  EXPECT_FALSE(KeptFolder::Hold(root_, "link"));
}

}  // namespace
}  // namespace adaptive_train::kept_folder_test
