// The valid forms of --store, and the place of the default store.
#include "db/store_location.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>

namespace adaptive_train {
namespace {

class StoreLocationTest : public ::testing::Test {
 protected:
  void SetUp() override {
    setenv("HOME", "/home/ann", 1);
    unsetenv("XDG_STATE_HOME");
  }
};

std::string PathOf(std::string_view text) {
  const auto location = ParseStoreLocation(text);
  return location ? location->path.string() : location.error().message;
}

ExitCode CodeOf(std::string_view text) {
  const auto location = ParseStoreLocation(text);
  return location ? ExitCode::kDone : location.error().exit_code;
}

TEST_F(StoreLocationTest, DefaultIsInTheStateFolder) {
  EXPECT_EQ(PathOf(""), "/home/ann/.local/state/adaptive-train/profiles.db");
  setenv("XDG_STATE_HOME", "/var/state/", 1);
  EXPECT_EQ(PathOf(""), "/var/state/adaptive-train/profiles.db");
}

TEST_F(StoreLocationTest, RelativeStateFolderIsRefused) {
  setenv("XDG_STATE_HOME", "state", 1);
  EXPECT_NE(PathOf("").find("XDG_STATE_HOME is 'state': set it to an absolute path"),
            std::string::npos)
      << PathOf("");
  EXPECT_EQ(CodeOf(""), ExitCode::kUsage);
}

TEST_F(StoreLocationTest, RelativeHomeIsRefused) {
  setenv("HOME", "ann", 1);
  EXPECT_NE(PathOf("").find("HOME is 'ann'"), std::string::npos) << PathOf("");
}

TEST_F(StoreLocationTest, TakesAbsoluteRelativeAndHomePaths) {
  EXPECT_EQ(PathOf("file:/data/p.db"), "/data/p.db");
  EXPECT_EQ(PathOf("file:/data/../p.db"), "/p.db");
  EXPECT_EQ(PathOf("file:~/p.db"), "/home/ann/p.db");
  EXPECT_EQ(PathOf("file:p.db"), (std::filesystem::current_path() / "p.db").string());
}

TEST_F(StoreLocationTest, RefusesWhatNamesNoFile) {
  for (const std::string_view text : {std::string_view("file:"), std::string_view("file:/data/"),
                                      std::string_view("file:/"), std::string_view("file:/a\0b", 9),
                                      std::string_view("unix:"), std::string_view("unix:/run/")}) {
    EXPECT_EQ(CodeOf(text), ExitCode::kUsage) << text;
    EXPECT_NE(PathOf(text).find("names no file"), std::string::npos) << PathOf(text);
  }
  EXPECT_EQ(CodeOf("/data/p.db"), ExitCode::kUsage);
  EXPECT_EQ(PathOf("/data/p.db"),
            "--store: '/data/p.db' is not a store: allowed is file:PATH or unix:PATH");
}

TEST_F(StoreLocationTest, AStoreOnAnotherHostIsNotInThisVersion) {
  EXPECT_EQ(CodeOf("tcp:head:6820"), ExitCode::kStore);
  EXPECT_NE(PathOf("tcp:head:6820").find("'tcp:head:6820' asks for a store on another host"),
            std::string::npos)
      << PathOf("tcp:head:6820");
}

TEST_F(StoreLocationTest, TheServiceIsNamedByItsSocket) {
  const auto location = ParseStoreLocation("unix:/run/../run/traind/socket");
  ASSERT_TRUE(location) << location.error().message;
  EXPECT_EQ(location->kind, StoreLocation::Kind::kService);
  EXPECT_EQ(location->path, "/run/traind/socket");
  EXPECT_EQ(ParseStoreLocation("file:/run/p.db").value().kind, StoreLocation::Kind::kFile);
}

}  // namespace
}  // namespace adaptive_train
