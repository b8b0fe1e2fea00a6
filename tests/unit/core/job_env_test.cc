// The option parser against good, bad and hostile text.
#include "core/job_env.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/limits.h"

namespace adaptive_train::job_env_test {
namespace {

using testing::HasSubstr;

struct Good {
  const char* text;
  const char* normalized;
};

constexpr Good kGood[] = {
    {"", "reuse=auto,spares=0,compress=auto,log=info"},
    {"(null)", "reuse=auto,spares=0,compress=auto,log=info"},
    {"reuse=never", "reuse=never,spares=0,compress=auto,log=info"},
    {"reuse=auto", "reuse=auto,spares=0,compress=auto,log=info"},
    {"spares=1", "reuse=auto,spares=1,compress=auto,log=info"},
    {"spares=1024", "reuse=auto,spares=1024,compress=auto,log=info"},
    {"compress=off", "reuse=auto,spares=0,compress=off,log=info"},
    {"log=debug", "reuse=auto,spares=0,compress=auto,log=debug"},
    {"log=debug,compress=off,spares=12,reuse=never",
     "reuse=never,spares=12,compress=off,log=debug"},
};

TEST(ParseJobOptions, AcceptsEveryDocumentedForm) {
  for (const Good& good : kGood) {
    const auto options = ParseJobOptions(good.text);
    ASSERT_TRUE(options) << good.text << ": " << options.error().message;
    EXPECT_EQ(FormatJobOptions(*options), good.normalized);
  }
}

TEST(ParseJobOptions, ReadsBackWhatItFormats) {
  for (const auto reuse : {JobOptions::Reuse::kAuto, JobOptions::Reuse::kNever}) {
    for (const auto compress : {JobOptions::Compress::kAuto, JobOptions::Compress::kOff}) {
      for (const auto log : {JobOptions::Log::kInfo, JobOptions::Log::kDebug}) {
        const JobOptions options{reuse, 7, compress, log};
        EXPECT_EQ(ParseJobOptions(FormatJobOptions(options)).value(), options);
      }
    }
  }
}

struct Bad {
  std::string text;
  const char* says;  // required in the message besides the allowed values
};

const std::string kTenKilobytes(10240, 'a');

const Bad kBad[] = {
    {"foo=1", "unknown key \"foo\""},
    {"Reuse=auto", "unknown key \"Reuse\""},
    {"reuse", "no value for reuse"},
    {"spares", "no value for spares"},
    {"reuse=", "bad value \"\" of reuse"},
    {"reuse=always", "bad value \"always\" of reuse"},
    {"reuse=auto=never", "bad value \"auto=never\" of reuse"},
    {"compress=on", "bad value \"on\" of compress"},
    {"log=trace", "bad value \"trace\" of log"},
    {"spares=", "bad value \"\" of spares"},
    {"spares=-1", "bad value \"-1\" of spares"},
    {"spares=+1", "bad value \"+1\" of spares"},
    {"spares=1.5", "bad value \"1.5\" of spares"},
    {"spares=1025", "bad value \"1025\" of spares"},
    {"spares=99999999999999999999", "bad value \"99999999999999999999\" of spares"},
    {"spares=0x10", "bad value \"0x10\" of spares"},
    {"spares=1,spares=2", "spares is given twice"},
    {"reuse=auto,log=info,reuse=auto", "reuse is given twice"},
    {",", "empty item"},
    {"reuse=auto,", "empty item"},
    {",reuse=auto", "empty item"},
    {"reuse=auto,,log=info", "empty item"},
    {"=", "unknown key \"\""},
    {"=auto", "unknown key \"\""},
    {"(null),log=info", "unknown key \"(null)\""},
    {"reuse =auto", "character \" \" at byte 6"},
    {"reuse=\"auto\"", "character \"\\x22\" at byte 7"},
    {"reuse='auto'", "character \"'\" at byte 7"},
    {"reuse=auto\nlog=info", "character \"\\x0a\" at byte 11"},
    {"reuse=auto\r", "character \"\\x0d\" at byte 11"},
    {std::string("reuse=auto\0log=info", 19), "character \"\\x00\" at byte 11"},
    {"reuse=\x1b[31mauto", "character \"\\x1b\" at byte 7"},
    {"reuse=a\xc3\xbcto", "character \"\\xc3\" at byte 8"},
    {"reuse=auto;$(touch${IFS}x)", "bad value \"auto;$(touch${IFS}x)\" of reuse"},
    {";$(id)=1", "unknown key \";$(id)\""},
    {"`id`", "character \"`\" at byte 1"},
    {"%s%s%n=1", "unknown key \"%s%s%n\""},
    {kTenKilobytes, "10240 bytes long"},
    {"reuse=" + std::string(kMaxOptionBytes, 'x'), "1030 bytes long"},
};

TEST(ParseJobOptions, RefusesInOneShortLineThatNamesTheCulprit) {
  for (const Bad& bad : kBad) {
    const auto options = ParseJobOptions(bad.text);
    ASSERT_FALSE(options) << bad.text.substr(0, 60);
    const std::string& message = options.error().message;
    EXPECT_THAT(message, HasSubstr(bad.says));
    EXPECT_LT(message.size(), 250U) << message;
    for (const char c : message) EXPECT_TRUE(c >= 0x20 && c < 0x7f) << message;
  }
}

TEST(ParseJobOptions, ShortensWhatItShows) {
  const auto options = ParseJobOptions(std::string(1000, 'k') + "=1");
  ASSERT_FALSE(options);
  EXPECT_THAT(options.error().message, HasSubstr("\"" + std::string(48, 'k') + "...\""));
}

TEST(ParseJobOptions, SaysWhatIsAllowed) {
  EXPECT_THAT(ParseJobOptions("foo=1").error().message,
              HasSubstr("reuse=auto|never, spares=0..1024, compress=auto|off, log=info|debug"));
  EXPECT_THAT(ParseJobOptions("spares=x").error().message,
              HasSubstr("allowed: a whole number from 0 to 1024"));
  EXPECT_THAT(ParseJobOptions("log=x").error().message, HasSubstr("allowed: info or debug"));
}

TEST(SnapshotPath, LiesInTheJobsFolder) {
  EXPECT_EQ(SnapshotPath(4294967295U), "/run/adaptive-train/4294967295/node.json");
}

}  // namespace
}  // namespace adaptive_train::job_env_test
