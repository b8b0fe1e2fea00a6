// What the site's file and the user's set: order, sources, and the errors of invalid ones.
#include "core/settings.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>

namespace adaptive_train::settings_test {
namespace {

using testing::HasSubstr;

class SettingsTest : public testing::Test {
 protected:
  void SetUp() override {
    std::string pattern =
        (std::filesystem::temp_directory_path() / "settings_test.XXXXXX").string();
    ASSERT_NE(::mkdtemp(pattern.data()), nullptr);
    folder_ = pattern;
    site_ = folder_ + "/site.toml";
    user_ = folder_ + "/config/adaptive-train/adaptive-train.toml";
    std::filesystem::create_directories(std::filesystem::path(user_).parent_path());
    ::setenv("ADAPTIVE_TRAIN_SITE_CONFIG", site_.c_str(), 1);
    ::setenv("XDG_CONFIG_HOME", (folder_ + "/config").c_str(), 1);
  }
  void TearDown() override {
    ::unsetenv("ADAPTIVE_TRAIN_SITE_CONFIG");
    ::unsetenv("XDG_CONFIG_HOME");
    std::filesystem::remove_all(folder_);
  }

  static void Write(const std::string& path, const std::string& text) {
    std::ofstream(path) << text;
    ::chmod(path.c_str(), 0644);
  }
  /// Of a site's file with this text; "accepted" if it is.
  std::string ErrorOf(const std::string& text) {
    Write(site_, text);
    const auto settings = LoadSettings();
    if (settings) return "accepted";
    EXPECT_EQ(settings.error().exit_code, ExitCode::kUsage);
    EXPECT_EQ(settings.error().message.find('\n'), std::string::npos);
    return settings.error().message;
  }

  std::string folder_, site_, user_;
};

TEST_F(SettingsTest, WithoutFilesAllIsBuiltIn) {
  const auto settings = LoadSettings();
  ASSERT_TRUE(settings) << settings.error().message;
  EXPECT_EQ(settings->store, "");
  EXPECT_EQ(ToToml(settings->defaults), ToToml(Config{}));
  for (const ShownSetting& shown : ListSettings(*settings)) EXPECT_EQ(shown.source, "built-in");
}

TEST_F(SettingsTest, TheUserComesAfterTheSiteAndAConfigurationAfterBoth) {
  Write(site_,
        "store = \"tcp:ctl:6822\"\nstore_uid = 990\nmunge_socket = \"/run/m\"\n[launch]\nports = "
        "\"4000-4100\"\nmpi = \"pmix_v4\"\n"
        "silence_seconds = 5\n");
  Write(user_, "[launch]\nports = \"5000-5100\"\n");
  const auto settings = LoadSettings();
  ASSERT_TRUE(settings) << settings.error().message;
  EXPECT_EQ(settings->store, "tcp:ctl:6822");
  EXPECT_EQ(settings->store_uid, 990u);
  EXPECT_EQ(settings->munge_socket, "/run/m");
  EXPECT_EQ(settings->sources.at("store"), site_ + ": line 1");
  EXPECT_EQ(settings->sources.at("launch.ports"), user_ + ": line 2");
  EXPECT_EQ(settings->sources.at("launch.mpi"), site_ + ": line 6");

  const std::string path = folder_ + "/config.toml";
  Write(path, "[data]\ntrain = \"text\"\n[launch]\nsilence_seconds = 7\n");
  const auto config = LoadConfig(path, {{"launch.mpi", "pmix"}}, settings->defaults);
  ASSERT_TRUE(config) << config.error().message;
  EXPECT_EQ(config->launch.ports, "5000-5100");
  EXPECT_EQ(config->launch.silence_seconds, 7);
  EXPECT_EQ(config->launch.mpi, "pmix");
}

TEST_F(SettingsTest, EachSettingIsShownWithItsSource) {
  Write(site_, "[recovery]\nattempts = 5\n");
  const auto settings = LoadSettings();
  ASSERT_TRUE(settings) << settings.error().message;
  std::map<std::string, ShownSetting> shown;
  for (const ShownSetting& one : ListSettings(*settings)) shown[one.key] = one;
  EXPECT_EQ(shown.at("recovery.attempts").value, "5");
  EXPECT_EQ(shown.at("recovery.attempts").source, site_ + ": line 2");
  EXPECT_EQ(shown.at("launch.mpi").value, "\"pmix\"");
  EXPECT_EQ(shown.at("store").source, "built-in");
  EXPECT_FALSE(shown.contains("model.layers"));
}

TEST_F(SettingsTest, ErrorsAreOneLineWithFileAndLine) {
  EXPECT_EQ(ErrorOf("\n[launch]\nport = \"1-2\"\n"),
            site_ + ": line 3: unknown key launch.port; the nearest is launch.ports");
  EXPECT_THAT(ErrorOf("[train]\nsteps = 3\n"),
              HasSubstr(site_ + ": line 2: train.steps belongs into the configuration of a run"));
  EXPECT_THAT(ErrorOf("[launch]\nsilence_seconds = \"long\"\n"),
              HasSubstr(": line 2: launch.silence_seconds must be a number from 1 to 600"));
  EXPECT_THAT(ErrorOf("[launch]\nports = \"9-3\"\n"), HasSubstr(": line 2: "));
  EXPECT_THAT(ErrorOf("[launch]\nmpi = \"openmpi; rm -rf\"\n"), HasSubstr("launch.mpi must be"));
  EXPECT_THAT(ErrorOf("store = 3\n"), HasSubstr(": line 1: store must be a text"));
  EXPECT_THAT(ErrorOf("stores = \"file:/p.db\"\n"), HasSubstr(": line 1: unknown key stores"));
  EXPECT_THAT(ErrorOf("store_uid = \"slurm\"\n"), HasSubstr("store_uid must be a uid in numbers"));
  EXPECT_THAT(ErrorOf("store_uid = -1\n"), HasSubstr("store_uid must be a uid in numbers"));
  EXPECT_THAT(ErrorOf("munge_socket = \"socket\"\n"), HasSubstr("must be an absolute path"));
  EXPECT_THAT(ErrorOf("[launch\n"), HasSubstr(site_ + ": line "));
  EXPECT_THAT(ErrorOf("format_version = 99\n"), HasSubstr("newer than this program reads"));
  EXPECT_THAT(ErrorOf(std::string(2 << 20, '#')), HasSubstr(site_));
  EXPECT_EQ(ErrorOf("format_version = 1\n"), "accepted");
}

TEST_F(SettingsTest, SpeedsOfDevicesAreReadAndPrintedAsTheyStand) {
  const std::string list =
      R"([{model = "A \"B\"", tflops = 0.09}, {model = "C", tflops = 15.5, copy_gb_per_s = 1400.0}])";
  ASSERT_EQ(ErrorOf("[device]\nspeeds = " + list + "\n"), "accepted");
  const auto settings = LoadSettings();
  EXPECT_EQ(settings->defaults.device.speeds,
            (std::vector<KnownSpeed>{{"A \"B\"", 0.09, 0}, {"C", 15.5, 1400}}));
  const auto shown = ListSettings(*settings);
  const auto speeds = std::ranges::find(shown, "device.speeds", &ShownSetting::key);
  ASSERT_NE(speeds, shown.end());
  EXPECT_EQ(speeds->value, list);
  for (const char* wrong :
       {"3", "[3]", "[{tflops = 1}]", "[{model = \"A\"}]", "[{model = \"A\", tflops = 0}]",
        "[{model = \"A\", tflops = \"1\"}]", "[{model = \"A\", tflops = nan}]",
        "[{model = \"A\", tflops = 1, copy_gb_per_s = -1}]",
        "[{model = \"A\", tflops = 1, watts = 1}]",
        "[{model = \"A\", tflops = 1}, {model = \"A\", tflops = 2}]"})
    EXPECT_THAT(ErrorOf(std::string("[device]\nspeeds = ") + wrong + "\n"),
                HasSubstr(": line 2: device.speeds must be a list such as [{model = "))
        << wrong;
}

TEST_F(SettingsTest, ASitesFileThatOthersMayWriteIsRefused) {
  Write(site_, "[launch]\n");
  ::chmod(site_.c_str(), 0664);
  EXPECT_THAT(LoadSettings().error().message, HasSubstr("others than its owner may write it"));
  ::chmod(site_.c_str(), 0644);
  EXPECT_TRUE(LoadSettings());
  ASSERT_EQ(::geteuid(), 0u) << "this test gives a file away, as root only may";
  ASSERT_EQ(::chown(site_.c_str(), 65534, 65534), 0);
  EXPECT_THAT(LoadSettings().error().message, HasSubstr("belongs to uid 65534"));
}

TEST_F(SettingsTest, TheShippedFileIsAcceptedWithItsCommentsTakenAway) {
  std::ifstream file(std::string(SOURCE_DIR) + "/site_configs/adaptive-train.toml");
  std::string text, bare;
  for (std::string line; std::getline(file, line);) {
    text += line + "\n";
    bare += (line.starts_with("#") && !line.starts_with("# ") ? line.substr(1) : line) + "\n";
  }
  EXPECT_EQ(ErrorOf(text), "accepted");
  EXPECT_TRUE(LoadSettings()->sources.empty());
  EXPECT_EQ(ErrorOf(bare), "accepted");
  for (const ShownSetting& shown : ListSettings(*LoadSettings()))
    EXPECT_NE(shown.source, "built-in") << shown.key << " is not in the file";
}

}  // namespace
}  // namespace adaptive_train::settings_test
