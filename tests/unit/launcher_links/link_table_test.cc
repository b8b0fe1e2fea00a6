// The table of links, letter by letter, and how figures are shown.
#include "launcher/report/link_table.h"

#include <gtest/gtest.h>

namespace adaptive_train::link_table_test {
namespace {

constexpr double kNow = 2e9;

TEST(ShownRate, HasThreeFiguresAndAUnit) {
  EXPECT_EQ(ShownRate(6.25e6), "50.0 Mbit/s");
  EXPECT_EQ(ShownRate(1.25e5), "1.00 Mbit/s");
  EXPECT_EQ(ShownRate(124.9e6), "999 Mbit/s");
  EXPECT_EQ(ShownRate(125e6), "1.00 Gbit/s");
  EXPECT_EQ(ShownRate(12.5e9), "100 Gbit/s");
  EXPECT_EQ(ShownLatency(1.5e-6), "1.50 us");
  EXPECT_EQ(ShownLatency(0.012), "12.0 ms");
}

TEST(LinkTable, RowsFromColumnsToWithMarksAndNamesInTheOrderOfTheirNumbers) {
  Profile profile;
  profile.links = {{"n10", "n2", 2e-4, 6.25e6, {1, 0.3, kNow}},
                   {"n2", "n10", 1e-4, 12.5e6, {1, 0, kNow - 1e8}},
                   {"n2", "n2", 2e-6, 1e10, {1, 0, kNow}},
                   {"n1", "n2", 1e-4, 50e6, {3, 0, kNow}}};
  profile.devices = {{"n2", "EPYC, 1 thread", 1.5e11, 1e10, {1, 0, kNow}}};
  EXPECT_EQ(RenderLinkTable(profile, kNow),
            "Mbit/s  n1     n2   n10\n"
            "n1            400     ?\n"
            "n2       ?         100*\n"
            "n10      ?  50.0~\n"
            "\n"
            "us   n1   n2  n10\n"
            "n1       100    ?\n"
            "n2    ?       100\n"
            "n10   ?  200\n"
            "rows: from, columns: to; us: one way\n"
            "*: old, ill founded or disputed between users; a job measures it again\n"
            "~: wavered while it was measured\n"
            "\n"
            "n2: 150 GFLOP/s, copies 10.0 GB/s, 2.00 us between threads (EPYC, 1 thread)\n");
}

TEST(LinkTable, WhatUsersDisputeOrNobodyConfirmsIsMarked) {
  Profile profile;
  profile.links = {{"n1", "n2", 1e-4, 50e6, {3, 0, kNow, Trust::kDisputed}},
                   {"n2", "n1", 1e-4, 50e6, {3, 0, kNow, Trust::kUnconfirmed}}};
  const std::string table = RenderLinkTable(profile, kNow);
  EXPECT_NE(table.find("400*"), std::string::npos) << table;
  EXPECT_NE(table.find("400^"), std::string::npos) << table;
  EXPECT_NE(table.find("^: measured by one or two other users alone"), std::string::npos) << table;
}

TEST(LinkTable, NothingKnownIsAnEmptyTable) { EXPECT_EQ(RenderLinkTable({}, kNow), ""); }

}  // namespace
}  // namespace adaptive_train::link_table_test
