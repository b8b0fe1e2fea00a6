// The links command as typed, on real store files.
#include "launcher/commands/links.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "core/profile.h"
#include "db/file_store.h"

namespace adaptive_train::links_test {
namespace {

struct Outcome {
  int exit_code = -1;
  std::string out, err;
};

class LinksTest : public ::testing::Test {
 protected:
  LinksTest() {
    std::string pattern = (std::filesystem::temp_directory_path() / "links-XXXXXX").string();
    if (mkdtemp(pattern.data()) == nullptr) std::abort();
    folder_ = pattern;
    unsetenv("SLURM_JOB_ID");
  }
  ~LinksTest() override {
    std::error_code ignored;  // a leftover folder does not fail the test
    std::filesystem::remove_all(folder_, ignored);
  }

  void Save(const std::string& cluster) {
    auto store = FileStore::Open(StoreLocation{folder_ / "profiles.db"});
    ASSERT_TRUE(store) << store.error().message;
    Profile profile;
    profile.links = {{"n1", "n2", 1e-4, 12.5e6, {1, 0, 1}}, {"n2", "n1", 1e-4, 25e6, {1, 0, 1}}};
    ASSERT_TRUE(store->SaveMeasurements(cluster, profile));
  }

  Outcome Links(const std::string& arguments, bool named = true) const {
    CLI::App app("adaptive-train", "adaptive-train");
    app.require_subcommand(1);
    std::function<int()> chosen;
    AddLinksCommand(app, chosen);
    Outcome outcome;
    try {
      const std::string store = " --store file:" + (folder_ / "profiles.db").string() + " ";
      app.parse("links" + (named ? store : " ") + arguments);
    } catch (const CLI::ParseError& error) {
      return {2, "", error.what()};
    }
    testing::internal::CaptureStdout();
    testing::internal::CaptureStderr();
    outcome.exit_code = chosen();
    outcome.out = testing::internal::GetCapturedStdout();
    outcome.err = testing::internal::GetCapturedStderr();
    return outcome;
  }

  std::filesystem::path folder_;
};

TEST_F(LinksTest, NothingStoredIsSaidAndNoFileIsMade) {
  const Outcome outcome = Links("");
  EXPECT_EQ(outcome.exit_code, 2);
  EXPECT_NE(outcome.err.find("no links are stored in "), std::string::npos);
  EXPECT_FALSE(std::filesystem::exists(folder_ / "profiles.db"));
}

TEST_F(LinksTest, TheOnlyClusterIsShown) {
  Save("alpha");
  const Outcome outcome = Links("");
  EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_EQ(outcome.out.substr(0, outcome.out.find("\n\n")),
            "Mbit/s    n1    n2\nn1            100*\nn2      200*");
  EXPECT_NE(outcome.out.find("*: old, ill founded"), std::string::npos);
}

TEST_F(LinksTest, OfSeveralOneMustBeNamed) {
  Save("alpha");
  Save("beta");
  Outcome outcome = Links("");
  EXPECT_EQ(outcome.exit_code, 2);
  EXPECT_NE(outcome.err.find("several clusters (alpha, beta)"), std::string::npos);
  EXPECT_EQ(Links("--cluster beta").exit_code, 0);
  outcome = Links("--cluster gamma");
  EXPECT_EQ(outcome.exit_code, 2);
  EXPECT_NE(outcome.err.find("nothing is stored of gamma; the store knows alpha, beta"),
            std::string::npos);
}

TEST_F(LinksTest, JsonIsAProfileThatCanBeReadAgain) {
  Save("alpha");
  const auto profile = ProfileFromJson(Links("--json").out);
  ASSERT_TRUE(profile) << profile.error().message;
  EXPECT_EQ(profile->links.size(), 2u);
}

TEST_F(LinksTest, ThePictureGoesToItsFile) {
  Save("alpha");
  const std::string path = (folder_ / "links.svg").string();
  EXPECT_EQ(Links("--svg " + path).exit_code, 0);
  std::stringstream text;
  text << std::ifstream(path).rdbuf();
  EXPECT_EQ(text.str().rfind("<svg ", 0), 0u);
  const Outcome outcome = Links("--svg " + (folder_ / "nowhere/links.svg").string());
  EXPECT_NE(outcome.exit_code, 0);
  EXPECT_NE(outcome.err.find("nowhere/links.svg"), std::string::npos);
}

TEST_F(LinksTest, WrongInputIsRefused) {
  EXPECT_EQ(Links("--nonsense").exit_code, 2);
  EXPECT_EQ(Links("--cluster alpha --measure").exit_code, 2);
  std::ofstream(folder_ / "profiles.db") << "this is no database, however long one reads in it";
  const Outcome outcome = Links("");
  EXPECT_EQ(outcome.exit_code, 6);
  EXPECT_EQ(outcome.err.find("adaptive-train links: profile store"), 0u) << outcome.err;
  EXPECT_EQ(Links("--launch.ports=1-2").exit_code, 2);
  EXPECT_EQ(Links("config.toml").exit_code, 2);
  EXPECT_EQ(Links("--measure --launch.ports=1-2").exit_code, 2);
}

TEST_F(LinksTest, AnUnusableDefaultStoreIsAWarning) {
  setenv("XDG_STATE_HOME", folder_.c_str(), 1);
  std::filesystem::create_directories(folder_ / "adaptive-train");
  std::ofstream(folder_ / "adaptive-train/profiles.db") << "this is no database, however long";
  const Outcome outcome = Links("", false);
  unsetenv("XDG_STATE_HOME");
  EXPECT_EQ(outcome.exit_code, 2);
  EXPECT_EQ(outcome.err.find("adaptive-train links: warning: profile store"), 0u) << outcome.err;
  EXPECT_NE(outcome.err.find("no links are known without the store"), std::string::npos);
}

}  // namespace
}  // namespace adaptive_train::links_test
