// What several users measured of one thing, told as one figure: whatever one of them says.
#include "db/told_figures.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <cmath>
#include <random>

namespace adaptive_train::told_figures_test {
namespace {

constexpr double kNow = 1.9e9;
constexpr Owner kReader = 99;

Report<LinkMeasurement> Link(Owner owner, double rate, double age = 0, double latency = 1e-4) {
  return {owner, {"n1", "n2", latency, rate, {2, 0.05, kNow - age}}};
}
Report<DeviceMeasurement> Device(Owner owner, double flops, double moving) {
  return {owner, {"n1", "cpu", flops, 1e9, {2, 0.05, kNow}, moving}};
}
Trust TrustOf(const std::vector<Report<LinkMeasurement>>& reports) {
  return Told(reports, kReader, kNow)->evidence.trust;
}

TEST(Told, NothingFromNoReport) {
  EXPECT_FALSE(Told(std::vector<Report<LinkMeasurement>>{}, kReader, kNow));
}

TEST(Told, OnesOwnAsItIsWhereFewerThanThreeMeasured) {
  EXPECT_EQ(Told({Link(kReader, 8, 1e9)}, kReader, kNow), Link(kReader, 8, 1e9).figure);
  EXPECT_EQ(Told({Link(1, 1), Link(kReader, 8)}, kReader, kNow), Link(kReader, 8).figure);
}

TEST(Told, WhatOneOrTwoOthersSayIsUnconfirmedAndTheSlower) {
  EXPECT_EQ(TrustOf({Link(1, 5)}), Trust::kUnconfirmed);
  const auto of_two = Told({Link(1, 5, 0, 2e-4), Link(2, 4)}, kReader, kNow);
  EXPECT_EQ(of_two->evidence.trust, Trust::kUnconfirmed);
  EXPECT_EQ(of_two->bytes_per_second, 4);
  EXPECT_EQ(of_two->latency_s, 2e-4);
}

TEST(Told, ThreeThatAgreeAreKnownByTheirMedians) {
  const auto told = Told(
      {Link(1, 102, 0, 3e-4), Link(2, 100, 0, 1e-4), Link(kReader, 101, 0, 2e-4)}, kReader, kNow);
  EXPECT_EQ(told->evidence.trust, Trust::kKnown);
  EXPECT_EQ(told->bytes_per_second, 101);
  EXPECT_EQ(told->latency_s, 2e-4);
  EXPECT_EQ(told->evidence.count, 6);
}

TEST(Told, WhatOneOfThemMovesIsDisputed) {
  EXPECT_EQ(TrustOf({Link(1, 100), Link(2, 101), Link(3, 2)}), Trust::kDisputed);
  EXPECT_EQ(TrustOf({Link(1, 100), Link(2, 101), Link(3, 2), Link(4, 99), Link(5, 102)}),
            Trust::kKnown);
}

TEST(Told, ThreeMustHaveMeasuredLately) {
  EXPECT_EQ(TrustOf({Link(1, 100), Link(2, 100), Link(3, 100, 1.1 * kReportWindow)}),
            Trust::kUnconfirmed);
  const std::vector<Report<LinkMeasurement>> young_and_old = {Link(1, 100),
                                                              Link(2, 100),
                                                              Link(3, 100),
                                                              Link(4, 50, 1.1 * kReportWindow),
                                                              Link(5, 50, 1.1 * kReportWindow),
                                                              Link(6, 50, 1.1 * kReportWindow)};
  EXPECT_EQ(Told(young_and_old, kReader, kNow)->bytes_per_second, 100);
  EXPECT_EQ(TrustOf(young_and_old), Trust::kKnown);
}

TEST(Told, ALoneYoungReportDrivesNobodyOut) {
  const double old = 1.1 * kReportWindow;
  const auto told =
      Told({Link(1, 100, old), Link(2, 101, old), Link(3, 102, old), Link(4, 1e9)}, kReader, kNow);
  EXPECT_EQ(told->evidence.trust, Trust::kUnconfirmed);
  EXPECT_EQ(told->bytes_per_second, 101);
  EXPECT_LT(told->evidence.measured_at, kNow);
  EXPECT_EQ(Told({Link(kReader, 100, old), Link(4, 1e9)}, kReader, kNow)->bytes_per_second, 100);
}

TEST(Told, AnyTimeIsTold) {
  for (const double now : {-1e9, 0.0, 1e300})
    EXPECT_TRUE(Told({Link(1, 100), Link(2, 100), Link(3, 100)}, kReader, now)) << now;
}

TEST(Told, ADevicesTransfersAreOfThreeOrOfTheReader) {
  const auto transfer = [](double second, double third) {
    return Told({Device(1, 100, 1), Device(2, 101, second), Device(kReader, 102, third)}, kReader,
                kNow)
        ->transfer_s_per_byte;
  };
  EXPECT_EQ(transfer(0, 0), 0) << "one user alone says it";
  EXPECT_EQ(transfer(0, 3e-10), 3e-10);
  EXPECT_EQ(transfer(2e-10, 3e-10), 3e-10) << "a median";
}

// The promise to whoever shares a store: one user moves nothing that is not disputed by more than
// 5 %, and from three on nothing beyond what the others measured.
TEST(Told, ALiarMovesNoUndisputedFigure) {
  std::mt19937 random(5);
  const auto uniform = [&](double low, double high) {
    return std::uniform_real_distribution<double>(low, high)(random);
  };
  int undisputed = 0;
  for (int draw = 0; draw < 20000; ++draw) {
    std::vector<Report<LinkMeasurement>> honest;
    const int users = 2 + draw % 8;
    for (Owner owner = 1; owner <= users; ++owner)
      honest.push_back(Link(owner, 100 * uniform(0.95, 1.05), uniform(0, 1.2 * kReportWindow)));
    const auto [least, most] = std::ranges::minmax(
        honest, {}, [](const auto& report) { return report.figure.bytes_per_second; });
    Report<LinkMeasurement> lie =
        Link(50, std::exp(uniform(-10, 20)), uniform(0, 1.2 * kReportWindow));
    lie.figure.evidence.count = 1 << 20;
    auto all = honest;
    all.push_back(lie);
    const double told = Told(all, kReader, kNow)->bytes_per_second;
    std::erase_if(honest, [](const auto& report) {
      return report.figure.evidence.measured_at < kNow - kReportWindow;
    });
    ASSERT_GE(told, least.figure.bytes_per_second);
    ASSERT_LE(told, most.figure.bytes_per_second);
    if (TrustOf(all) != Trust::kKnown) continue;
    ++undisputed;
    ASSERT_GE(honest.size(), 2u);
    const double without = Told(honest, kReader, kNow)->bytes_per_second;
    ASSERT_LE(std::abs(told - without), 0.0501 * without);
  }
  EXPECT_GT(undisputed, 5000);
}

}  // namespace
}  // namespace adaptive_train::told_figures_test
