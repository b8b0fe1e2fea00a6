// plugstack.conf and the plugin's file, read without loading it.
#include "launcher/doctor/plugin_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <slurm/slurm_version.h>

#include <fstream>
#include <iterator>

#include "launcher/doctor/slurm_checks.h"
#include "launcher/steps/slurm_step.h"
#include "tests/unit/spank_plugin/temporary_folder.h"

namespace adaptive_train::plugin_file_test {
namespace {

using testing::HasSubstr;

TEST(FindPluginLine, FollowsIncludesAndLeavesCommentsOut) {
  const TemporaryFolder folder;
  const std::string path = folder.Path() + "/plugstack.conf";
  EXPECT_FALSE(FindPluginLine(path));
  folder.Write("plugstack.conf", "# optional adaptive_train.so\noptional other.so\n");
  EXPECT_FALSE(FindPluginLine(path).value());
  folder.Write("plugstack.conf", "include plugstack.conf.d/*.conf\ninclude plugstack.conf\n");
  folder.Write("plugstack.conf.d/a.conf", "required other.so\n");
  folder.Write("plugstack.conf.d/b.conf", "\noptional /opt/adaptive_train.so deadline=2 # ours\n");
  const auto line = FindPluginLine(path).value();
  ASSERT_TRUE(line);
  EXPECT_EQ(line->path, "/opt/adaptive_train.so");
  EXPECT_FALSE(line->required);
  EXPECT_EQ(line->where, folder.Path() + "/plugstack.conf.d/b.conf: line 2");
  folder.Write("plugstack.conf.d/b.conf", "");
  EXPECT_FALSE(FindPluginLine(path).value());  // plugstack.conf includes itself without end
}

TEST(PluginVersionOf, ReadsThatOfThePluginAndRefusesAllElse) {
  const auto version = PluginVersionOf(PLUGIN_FILE);
  ASSERT_TRUE(version) << version.error().message;
  EXPECT_EQ(*version, std::uint32_t{SLURM_VERSION_NUMBER});
  EXPECT_FALSE(PluginVersionOf("/nonexistent.so"));
  EXPECT_FALSE(PluginVersionOf("/proc/self/exe"));
}

TEST(PluginVersionOf, SurvivesAFileThatIsCutOrChangedAnywhere) {
  std::ifstream file(PLUGIN_FILE, std::ios::binary);
  const std::string whole((std::istreambuf_iterator<char>(file)), {});
  ASSERT_GT(whole.size(), 4096u);
  const TemporaryFolder folder;
  const std::string path = folder.Path() + "/cut.so";
  for (const std::size_t size : {std::size_t{0}, std::size_t{10}, std::size_t{64}, std::size_t{200},
                                 whole.size() / 2, whole.size() - 1}) {
    folder.Write("cut.so", whole.substr(0, size));
    (void)PluginVersionOf(path);
  }
  for (std::size_t at = 16; at < 64; ++at) {
    std::string changed = whole;
    changed[at] = '\xFF';
    folder.Write("cut.so", changed);
    (void)PluginVersionOf(path);
  }
}

TEST(SlurmVersionOf, ReadsWhatSrunSays) {
  EXPECT_EQ(SlurmVersionOf("slurm-wlm 22.05.8"), 0x160508u);
  EXPECT_EQ(SlurmVersionOf("slurm 23.11"), 0x170B00u);
  EXPECT_FALSE(SlurmVersionOf("slurm"));
  EXPECT_EQ(ReleaseOf(0x160508), "22.05");
}

TEST(ParseSlurmSettings, TakesKeysAndValues) {
  const auto settings = ParseSlurmSettings(
      "Configuration data as of 2026\nAuthType                = auth/munge\n"
      "PlugStackConfig         = /etc/slurm/plugstack.conf\n\nSlurmctld(primary) at n1 is UP\n");
  EXPECT_EQ(settings.at("AuthType"), "auth/munge");
  EXPECT_EQ(settings.at("PlugStackConfig"), "/etc/slurm/plugstack.conf");
  EXPECT_EQ(settings.size(), 2u);
}

TEST(CheckPlugin, FindsEachFault) {
  const TemporaryFolder folder;
  const std::string conf = folder.Path() + "/plugstack.conf";
  const std::string slurm = "slurm " + ReleaseOf(SLURM_VERSION_NUMBER) + ".0";
  const auto check = [&](const std::string& text, const std::string& version) {
    folder.Write("plugstack.conf", text);
    return CheckPlugin(conf, "/usr/lib/slurm", version);
  };
  const std::string file = PLUGIN_FILE;
  EXPECT_EQ(check("optional " + file + "\n", slurm).severity, Severity::kGood);
  EXPECT_EQ(check("#optional " + file + "\n", slurm).severity, Severity::kNote);
  const Finding required = check("required " + file + "\n", slurm);
  EXPECT_EQ(required.severity, Severity::kTrouble);
  EXPECT_THAT(required.what, HasSubstr("line 1 loads it as `required`"));
  const Finding missing = check("optional adaptive_train.so\n", slurm);
  EXPECT_EQ(missing.severity, Severity::kTrouble);
  EXPECT_THAT(missing.what, HasSubstr("/usr/lib/slurm/adaptive_train.so: No such file"));
  const Finding other = check("optional " + file + "\n", "slurm 99.05.1");
  EXPECT_EQ(other.severity, Severity::kTrouble);
  EXPECT_THAT(other.what, HasSubstr("and this is slurm 99.05.1"));
}

TEST(CheckUnkillableTimeout, MustBeAboveSlurmsDefault) {
  EXPECT_EQ(CheckUnkillableTimeout("120 sec").severity, Severity::kGood);
  for (const char* const too_short : {"119 sec", "60 sec", ""}) {
    const Finding finding = CheckUnkillableTimeout(too_short);
    EXPECT_EQ(finding.severity, Severity::kNote) << too_short;
    EXPECT_THAT(finding.mend, HasSubstr("UnkillableStepTimeout=120"));
  }
}

TEST(CheckPrologFlags, NeedAlloc) {
  EXPECT_EQ(CheckPrologFlags("Alloc,Contain").severity, Severity::kGood);
  for (const char* const without : {"", "Serial", "NoHold"})
    EXPECT_EQ(CheckPrologFlags(without).severity, Severity::kNote) << without;
}

}  // namespace
}  // namespace adaptive_train::plugin_file_test
