// Times as sacct reads and shows them, in a time zone with a known offset and one with summer time.
#include "launcher/report/job_time.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <ctime>

namespace adaptive_train::job_time_test {
namespace {

class JobTimeTest : public ::testing::Test {
 protected:
  JobTimeTest() { UseZone("UTC-2"); }  // two hours east of Greenwich, no summer time
  ~JobTimeTest() override { UseZone("UTC0"); }

  static void UseZone(const char* zone) {
    setenv("TZ", zone, 1);
    tzset();
  }
  /// What the text is read as, shown again; the message where it is refused.
  std::string Read(std::string_view text) const {
    const auto time = ParseJobTime(text, now_);
    return time ? ShownTime(*time) : time.error().message;
  }

  // 2026-03-15T10:30:15 local, a Sunday.
  const double now_ = 1773563415;
};

TEST_F(JobTimeTest, NowIsWhatTheTestsSay) { EXPECT_EQ(ShownTime(now_), "2026-03-15T10:30:15"); }

TEST_F(JobTimeTest, Dates) {
  EXPECT_EQ(Read("2026-01-31"), "2026-01-31T00:00:00");
  EXPECT_EQ(Read("2026-01-31T07:08"), "2026-01-31T07:08:00");
  EXPECT_EQ(Read("2026-01-31t07:08:09"), "2026-01-31T07:08:09");
  EXPECT_EQ(Read("2024-02-29"), "2024-02-29T00:00:00");
  EXPECT_EQ(Read("03/15"), "2026-03-15T00:00:00");
  EXPECT_EQ(Read("3/1"), "2026-03-01T00:00:00");
  EXPECT_EQ(Read("03/16"), "2025-03-16T00:00:00");  // tomorrow has not been yet
  EXPECT_EQ(Read("12/31"), "2025-12-31T00:00:00");
  EXPECT_EQ(Read("12/31/24"), "2024-12-31T00:00:00");
  EXPECT_EQ(Read("12/31/24-23:59:58"), "2024-12-31T23:59:58");
  EXPECT_EQ(Read("01.02-03:04"), "2026-01-02T03:04:00");
  EXPECT_EQ(Read("01.02.25"), "2025-01-02T00:00:00");
  EXPECT_EQ(Read("0102"), "2026-01-02T00:00:00");
  EXPECT_EQ(Read("010225"), "2025-01-02T00:00:00");
  EXPECT_EQ(Read("0102-03:04:05"), "2026-01-02T03:04:05");
}

TEST_F(JobTimeTest, TimesOfToday) {
  EXPECT_EQ(Read("23:59"), "2026-03-15T23:59:00");
  EXPECT_EQ(Read("7:08:09"), "2026-03-15T07:08:09");
  EXPECT_EQ(Read("12:00AM"), "2026-03-15T00:00:00");
  EXPECT_EQ(Read("12:30pm"), "2026-03-15T12:30:00");
  EXPECT_EQ(Read("1:05PM"), "2026-03-15T13:05:00");
  EXPECT_EQ(Read("today"), "2026-03-15T00:00:00");
  EXPECT_EQ(Read("Midnight"), "2026-03-15T00:00:00");
  EXPECT_EQ(Read("noon"), "2026-03-15T12:00:00");
  EXPECT_EQ(Read("fika"), "2026-03-15T15:00:00");
  EXPECT_EQ(Read("teatime"), "2026-03-15T16:00:00");
}

TEST_F(JobTimeTest, FromNow) {
  EXPECT_EQ(Read("now"), "2026-03-15T10:30:15");
  EXPECT_EQ(Read("NOW-2days"), "2026-03-13T10:30:15");
  EXPECT_EQ(Read("now-15"), "2026-03-15T10:30:00");
  EXPECT_EQ(Read("now+1hour"), "2026-03-15T11:30:15");
  EXPECT_EQ(Read("now-10min"), "2026-03-15T10:20:15");
  EXPECT_EQ(Read("now-1week"), "2026-03-08T10:30:15");
  EXPECT_EQ(Read("now-30seconds"), "2026-03-15T10:29:45");
}

TEST_F(JobTimeTest, WhatIsNoTimeIsRefusedWithWhatIsAllowed) {
  for (const char* text : {"",
                           " ",
                           "yesterday",
                           "now-",
                           "now-2dd",
                           "now-2fortnights",
                           "now2days",
                           "now-days",
                           "2026-1",
                           "2026-01-31T",
                           "2026-01-31T7",
                           "2026-01-31 07:00",
                           "2026-01-31T07:00:00Z",
                           "01/",
                           "/02",
                           "01/02/3",
                           "01/02-",
                           "010",
                           "01022",
                           "0102261",
                           "7",
                           "7:5",
                           "7:05:1",
                           "07:05xm",
                           "12345678901",
                           "-1",
                           "2026-01-31T07:00:00:00",
                           "\xFF"}) {
    const std::string message = Read(text);
    EXPECT_NE(message.find("is no time: allowed are YYYY-MM-DD"), std::string::npos)
        << "'" << text << "': " << message;
  }
}

TEST_F(JobTimeTest, DaysAndHoursThatDoNotExistAreRefused) {
  for (const char* text : {"2026-02-29", "2026-13-01", "2026-00-10", "2026-01-00", "02/30", "1301",
                           "24:00", "12:60", "12:00:60", "13:00PM", "0:30AM", "2026-01-01T25:00"}) {
    EXPECT_EQ(Read(text), std::string("'") + text + "' is no time: there is no such day or hour");
  }
}

TEST_F(JobTimeTest, SummerTimeIsFollowed) {
  UseZone("CET-1CEST,M3.5.0,M10.5.0/3");
  const auto winter = ParseJobTime("2026-03-01T12:00", now_),
             summer = ParseJobTime("2026-07-01T12:00", now_);
  ASSERT_TRUE(winter && summer);
  EXPECT_EQ(*summer - *winter, 122 * 86400.0 - 3600.0);
  EXPECT_EQ(ShownTime(*summer), "2026-07-01T12:00:00");
}

TEST_F(JobTimeTest, Midnight) { EXPECT_EQ(ShownTime(Midnight(now_)), "2026-03-15T00:00:00"); }

TEST(ShownSpan, CountsDaysOnlyWhereThereAreSome) {
  EXPECT_EQ(ShownSpan(0), "00:00:00");
  EXPECT_EQ(ShownSpan(59.99), "00:00:59");
  EXPECT_EQ(ShownSpan(3661), "01:01:01");
  EXPECT_EQ(ShownSpan(86399), "23:59:59");
  EXPECT_EQ(ShownSpan(86400 * 12 + 3600), "12-01:00:00");
  EXPECT_EQ(ShownSpan(-5), "00:00:00");
}

}  // namespace
}  // namespace adaptive_train::job_time_test
