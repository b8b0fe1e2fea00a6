// What several users measured of one thing, told as one figure: whatever one of them says.
#include "db/told_figures.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <cmath>
#include <random>

namespace adaptive_train {
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

TEST(Told, OldReportsDoNotCountBesideYoungOnesAndNoneIsOfTheFuture) {
  EXPECT_EQ(TrustOf({Link(1, 100), Link(2, 100), Link(3, 100, 1.1 * kReportWindow)}),
            Trust::kUnconfirmed);
  const auto told = Told({Link(1, 100, -1e9), Link(2, 100), Link(3, 100)}, kReader, kNow);
  EXPECT_EQ(told->evidence.trust, Trust::kKnown);
  EXPECT_EQ(told->evidence.measured_at, kNow);
}

TEST(Told, ADevicesTransfersAreOfThoseWhoMeasuredThem) {
  const auto told =
      Told({Device(1, 100, 0), Device(2, 101, 3e-10), Device(3, 102, 0)}, kReader, kNow);
  EXPECT_EQ(told->product_flops, 101);
  EXPECT_EQ(told->transfer_s_per_byte, 3e-10);
  EXPECT_EQ(Told({Device(1, 100, 0)}, kReader, kNow)->transfer_s_per_byte, 0);
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
      honest.push_back(Link(owner, 100 * uniform(0.95, 1.05), uniform(0, 0.5 * kReportWindow)));
    const auto [least, most] = std::ranges::minmax(
        honest, {}, [](const auto& report) { return report.figure.bytes_per_second; });
    Report<LinkMeasurement> lie =
        Link(50, std::exp(uniform(-10, 20)), uniform(-1e9, 0.4 * kReportWindow));
    lie.figure.evidence.count = 1 << 20;
    auto all = honest;
    all.push_back(lie);
    const double told = Told(all, kReader, kNow)->bytes_per_second,
                 without = Told(honest, kReader, kNow)->bytes_per_second;
    ASSERT_GE(told, least.figure.bytes_per_second);
    ASSERT_LE(told, most.figure.bytes_per_second);
    if (TrustOf(all) == Trust::kDisputed) continue;
    ++undisputed;
    ASSERT_LE(std::abs(told - without), 0.0501 * without);
  }
  EXPECT_GT(undisputed, 8000);
}

}  // namespace
}  // namespace adaptive_train
