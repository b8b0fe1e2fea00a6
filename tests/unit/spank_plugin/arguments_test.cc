// The plugin's arguments in plugstack.conf.
#include "spank_plugin/arguments.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/limits.h"

namespace adaptive_train::plugin::arguments_test {
namespace {

using std::chrono::milliseconds;
using testing::HasSubstr;

ArgumentsResult Parse(std::vector<const char*> words) { return ParseArguments(words); }

TEST(ParseArguments, HasDefaults) {
  const ArgumentsResult result = Parse({});
  EXPECT_TRUE(result.arguments.probe.starts_with('/'));
  EXPECT_TRUE(result.arguments.probe.ends_with("/bin/adaptive-train-probe"));
  EXPECT_EQ(result.arguments.deadline, kProbeDeadline);
  EXPECT_TRUE(result.problems.empty());
}

TEST(ParseArguments, TakesPathAndDeadline) {
  for (const auto& [text, expected] : {std::pair{"deadline=0.1", 100},
                                       {"deadline=2", 2000},
                                       {"deadline=60", 60000},
                                       {"deadline=0.25", 250}}) {
    const ArgumentsResult result = Parse({"probe=/a/b", text});
    EXPECT_EQ(result.arguments.probe, "/a/b");
    EXPECT_EQ(result.arguments.deadline, milliseconds(expected));
    EXPECT_TRUE(result.problems.empty());
  }
}

TEST(ParseArguments, ReportsABadOneAndKeepsTheDefault) {
  for (const char* bad :
       {"deadline=0", "deadline=0.09", "deadline=60.1", "deadline=-1", "deadline=nan",
        "deadline=inf", "deadline=1e1", "deadline=", "deadline=2s", "deadline= 2", "deadline",
        "probe=relative/path", "probe=", "probe", "", "colour=red"}) {
    const ArgumentsResult result = Parse({bad});
    ASSERT_EQ(result.problems.size(), 1U) << bad;
    EXPECT_THAT(result.problems[0], HasSubstr(bad));
    EXPECT_EQ(result.arguments.deadline, kProbeDeadline);
    EXPECT_EQ(result.arguments.probe, Parse({}).arguments.probe);
  }
}

}  // namespace
}  // namespace adaptive_train::plugin::arguments_test
