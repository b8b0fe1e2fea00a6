// Orders survive a round trip; impossible orders are refused by name.
#include "core/measure_order.h"

#include <gtest/gtest.h>

namespace adaptive_train::measure_order_test {
namespace {

TEST(MeasureOrder, ComesBackAsItWasWritten) {
  MeasureOrder order;
  order.nodes = {{"n1", "EPYC", 4, true}, {"n2", "Xeon", 8, false}, {"n3", "Xeon", 8, true}};
  order.rounds = {{{0, 1}}, {{0, 2}}, {}};
  const auto read = MeasureOrderFromJson(ToJson(order));
  ASSERT_TRUE(read) << read.error().message;
  ASSERT_EQ(read->nodes.size(), 3u);
  EXPECT_EQ(read->nodes[1].name, "n2");
  EXPECT_EQ(read->nodes[1].device_kind, "Xeon");
  EXPECT_EQ(read->nodes[1].threads, 8);
  EXPECT_EQ(read->rounds, order.rounds);
  EXPECT_TRUE(read->nodes[0].device);
  EXPECT_FALSE(read->nodes[1].device);
}

std::string Refusal(const std::string& nodes, const std::string& pairs) {
  const auto read = MeasureOrderFromJson(R"({"format_version":1,"nodes":[)" + nodes +
                                         R"(],"rounds":[{"pairs":)" + pairs + R"(}]})");
  return read ? "read" : read.error().message;
}

TEST(MeasureOrder, WhatCannotBeIsRefused) {
  const std::string node = R"({"name":"a","device_kind":"k","threads":1,"device":true})";
  const std::string two = node + "," + node;
  EXPECT_EQ(Refusal(two, "[0,1]"), "read");
  EXPECT_NE(Refusal(two, "[0,2]").find("rounds[0].pairs"), std::string::npos);
  EXPECT_NE(Refusal(two, "[0,0]").find("all different"), std::string::npos);
  EXPECT_NE(Refusal(two, "[0]").find("all different"), std::string::npos);
  EXPECT_NE(Refusal(two, "[1,0]").find("smaller rank"), std::string::npos);
  EXPECT_NE(Refusal("", "[]").find("nodes: none"), std::string::npos);
  EXPECT_FALSE(MeasureOrderFromJson("{"));
  EXPECT_FALSE(MeasureOrderFromJson(R"({"format_version":99})"));
}

}  // namespace
}  // namespace adaptive_train::measure_order_test
