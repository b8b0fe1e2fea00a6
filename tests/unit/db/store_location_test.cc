// The valid forms of --store, and the place of the default store.
#include "db/store_location.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>

namespace adaptive_train::store_location_test {
namespace {

using testing::HasSubstr;

class StoreLocationTest : public ::testing::Test {
 protected:
  void SetUp() override {
    setenv("HOME", "/home/ann", 1);
    unsetenv("XDG_STATE_HOME");
    unsetenv("ADAPTIVE_TRAIN_STORE");
  }
};

Result<StoreLocation> Parsed(std::string_view text, const std::string& named_by = "--store") {
  StoreChoice choice;
  choice.text = text;
  choice.named_by = named_by;
  return ParseStoreLocation(choice);
}

std::string PathOf(std::string_view text) {
  const auto location = Parsed(text);
  return location ? location->path.string() : location.error().message;
}

ExitCode CodeOf(std::string_view text) {
  const auto location = Parsed(text);
  return location ? ExitCode::kDone : location.error().exit_code;
}

TEST_F(StoreLocationTest, DefaultIsInTheStateFolder) {
  EXPECT_EQ(PathOf(""), "/home/ann/.local/state/adaptive-train/profiles.db");
  setenv("XDG_STATE_HOME", "/var/state/", 1);
  EXPECT_EQ(PathOf(""), "/var/state/adaptive-train/profiles.db");
}

TEST_F(StoreLocationTest, TheCommandLineComesBeforeTheEnvironmentAndThatBeforeAFile) {
  Settings settings;
  EXPECT_EQ(ChooseStore("", settings).text, "");
  settings.store = "file:/data/site.db";
  settings.sources["store"] = "/etc/site.toml: line 3";
  EXPECT_EQ(ChooseStore("", settings).text, "file:/data/site.db");
  EXPECT_EQ(ChooseStore("", settings).named_by, "/etc/site.toml: line 3");
  setenv("ADAPTIVE_TRAIN_STORE", "file:/data/env.db", 1);
  EXPECT_EQ(ChooseStore("", settings).text, "file:/data/env.db");
  EXPECT_EQ(ChooseStore("", settings).named_by, "ADAPTIVE_TRAIN_STORE");
  EXPECT_EQ(ChooseStore("file:/data/typed.db", settings).text, "file:/data/typed.db");
}

TEST_F(StoreLocationTest, TheServicesSocketComesBeforeAFileOfOnesOwn) {
  Settings settings;
  std::string made = (std::filesystem::temp_directory_path() / "store-location-XXXXXX").string();
  const std::filesystem::path folder = ::mkdtemp(made.data());
  const auto path = folder / "traind" / "socket";
  EXPECT_EQ(ChooseStore("", settings, path).text, "");
  std::filesystem::create_directory(folder / "traind");
  EXPECT_EQ(ChooseStore("", settings, path).text, "unix:" + path.string());
  EXPECT_EQ(ChooseStore("", settings, path).named_by, "the service's socket");
  EXPECT_FALSE(ChooseStore("", settings, path).required);
  settings.store = "file:/data/site.db";
  settings.sources["store"] = "/etc/site.toml: line 3";
  EXPECT_EQ(ChooseStore("", settings, path).text, "file:/data/site.db");
  std::filesystem::remove_all(folder);
}

TEST_F(StoreLocationTest, OnlyTheCommandLineRequiresItsStore) {
  Settings settings;
  EXPECT_FALSE(ChooseStore("", settings).required);
  settings.store = "file:/data/site.db";
  settings.sources["store"] = "/etc/site.toml: line 3";
  EXPECT_FALSE(ChooseStore("", settings).required);
  setenv("ADAPTIVE_TRAIN_STORE", "file:/data/env.db", 1);
  EXPECT_FALSE(ChooseStore("", settings).required);
  EXPECT_TRUE(ChooseStore("file:/data/typed.db", settings).required);
}

TEST_F(StoreLocationTest, AnErrorSaysWhoNamedTheStore) {
  const auto refused = Parsed("/data/p.db", "ADAPTIVE_TRAIN_STORE");
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().message,
            "ADAPTIVE_TRAIN_STORE: '/data/p.db' is not a store: allowed is file:PATH, unix:PATH or "
            "tcp:HOST:PORT");
  EXPECT_THAT(Parsed("unix:", "/etc/site.toml: line 3").error().message,
              HasSubstr("/etc/site.toml: line 3: 'unix:' names no file"));
  EXPECT_THAT(Parsed("tcp:head:6822", "ADAPTIVE_TRAIN_STORE").error().message,
              HasSubstr("ADAPTIVE_TRAIN_STORE: 'tcp:head:6822' needs to know who may answer"));
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
  EXPECT_EQ(
      PathOf("/data/p.db"),
      "--store: '/data/p.db' is not a store: allowed is file:PATH, unix:PATH or tcp:HOST:PORT");
}

TEST_F(StoreLocationTest, AServiceOnAnotherHostIsKnownByItsAddressAndUid) {
  Settings settings;
  settings.store_uid = 990;
  settings.munge_socket = "/run/munge/other";
  const auto location = ParseStoreLocation(ChooseStore("tcp:[fd00::1]:6822", settings));
  ASSERT_TRUE(location) << location.error().message;
  EXPECT_EQ(location->kind, StoreLocation::Kind::kRemoteService);
  EXPECT_EQ(location->address, "[fd00::1]:6822");
  EXPECT_EQ(location->service, 990u);
  EXPECT_EQ(location->munge_socket, "/run/munge/other");
  EXPECT_EQ(NameOf(*location), "profile store tcp:[fd00::1]:6822");
  const auto place = ParseHostAndPort(location->address);
  ASSERT_TRUE(place);
  EXPECT_EQ(place->host, "fd00::1");
  EXPECT_EQ(place->port, "6822");
  for (const char* text : {"", ":", "head", "head:", ":6822", "head:0", "head:65536", "head:port",
                           "head:68 22", "fd00::1:6822", "[]:6822"})
    EXPECT_FALSE(ParseHostAndPort(text)) << text;
  EXPECT_THAT(ParseStoreLocation(ChooseStore("tcp:head", settings)).error().message,
              HasSubstr("'tcp:head' names no service: allowed is tcp:HOST:PORT"));
}

TEST_F(StoreLocationTest, TheServiceIsNamedByItsSocket) {
  const auto location = Parsed("unix:/run/../run/traind/socket");
  ASSERT_TRUE(location) << location.error().message;
  EXPECT_EQ(location->kind, StoreLocation::Kind::kLocalService);
  EXPECT_EQ(location->path, "/run/traind/socket");
  EXPECT_EQ(NameOf(*location), "profile store unix:/run/traind/socket");
  const auto file = Parsed("file:/run/p.db");
  ASSERT_TRUE(file) << file.error().message;
  EXPECT_EQ(file->kind, StoreLocation::Kind::kFile);
  EXPECT_EQ(NameOf(*file), "profile store /run/p.db");
}

}  // namespace
}  // namespace adaptive_train::store_location_test
