// Whole orders over real processes: every link of 1 to 5 nodes, a peer that dies on the way.
#include "runtime/measure/link_profiler.h"

#include <gtest/gtest.h>

#include <cmath>

#include "runtime/fatal_error.h"
#include "tests/multi_process/forked_ranks.h"

namespace adaptive_train::link_profiler_test {
namespace {

/// All pairs of `size` nodes, one pair per round.
MeasureOrder EveryPair(int size) {
  MeasureOrder order;
  for (int i = 0; i < size; ++i) order.nodes.push_back({"n" + std::to_string(i), "cpu", 1});
  for (int a = 0; a < size; ++a) {
    for (int b = a + 1; b < size; ++b) order.rounds.push_back({{a, b}});
  }
  return order;
}

bool Sane(const Profile& profile, std::size_t links, std::size_t devices) {
  for (const LinkMeasurement& link : profile.links) {
    RANK_REQUIRE(link.bytes_per_second > 1e5, link.bytes_per_second);
    RANK_REQUIRE(std::isfinite(link.bytes_per_second));
    RANK_REQUIRE(link.latency_s > 0, link.latency_s);
    RANK_REQUIRE(link.evidence.count == 1, link.evidence.count);
    RANK_REQUIRE(link.evidence.measured_at >= 1e9, link.evidence.measured_at);
  }
  // With one node there is nothing to move.
  for (const DeviceMeasurement& device : profile.devices) {
    const double each = device.transfer_s_per_byte;
    RANK_REQUIRE(links > 1 ? each > 1e-12 && each < 1e-6 : each == 0, device.node, each);
  }
  RANK_REQUIRE(profile.links.size() == links, profile.links.size(), links);
  RANK_REQUIRE(profile.devices.size() == devices, profile.devices.size(), devices);
  RANK_REQUIRE(ProfileFromJson(ToJson(profile)));
  return true;
}

class LinkProfilerSizes : public testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Nodes, LinkProfilerSizes, testing::Values(1, 2, 3, 4));

TEST_P(LinkProfilerSizes, EveryLinkInBothDirectionsAndEveryDevice) {
  Ranks ranks(GetParam(), [](Group& c) {
    const Profile profile = MeasureNodes(EveryPair(c.Size()), c).profile;
    const auto n = static_cast<std::size_t>(c.Size());
    if (c.Rank() == 0) return Sane(profile, n * n, n);
    RANK_REQUIRE(profile.links.empty());
    return true;
  });
  EXPECT_TRUE(ranks.AllGood());
}

TEST(LinkProfiler, OnlyWhatWasOrderedIsMeasured) {
  Ranks ranks(4, [](Group& c) {
    MeasureOrder order = EveryPair(4);
    order.rounds = {{{0, 2}, {1, 3}}};
    for (const std::size_t node : {0, 1, 3}) order.nodes[node].device = false;
    const Profile profile = MeasureNodes(order, c).profile;
    if (c.Rank() > 0) {
      RANK_REQUIRE(profile.links.empty());
      return true;
    }
    RANK_REQUIRE(profile.devices[0].node == order.nodes[2].name, profile.devices[0].node);
    return Sane(profile, 5, 1);
  });
  EXPECT_TRUE(ranks.AllGood());
}

TEST(LinkProfiler, APeerThatDiesIsNamedWithThePairAndTheOperation) {
  Ranks ranks(3, [](Group& c) {
    MeasureOrder order = EveryPair(3);
    order.rounds = {{{1, 2}}};
    if (c.Rank() == 2) ::raise(SIGKILL);
    try {
      MeasureNodes(order, c);
    } catch (const FatalError& error) {
      RANK_REQUIRE(error.Peer() == 2, error.Peer());
      RANK_REQUIRE(error.Operation() == "latency of n1 - n2", error.Operation());
      return true;
    }
    RANK_REQUIRE(!"measured without rank 2");
    return true;
  });
  EXPECT_TRUE(ranks.Good(1));
}

}  // namespace
}  // namespace adaptive_train::link_profiler_test
