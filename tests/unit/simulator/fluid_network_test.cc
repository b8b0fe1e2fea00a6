// Flows share resources max-min fairly.
#include "launcher/simulator/fluid_network.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <deque>
#include <limits>
#include <random>
#include <vector>

namespace adaptive_train::fluid_network_test {
namespace {

struct Fixture : ::testing::Test {
  EventLoop loop;
  FluidNetwork network{loop};
  /// Starts a flow at `at`; returns its end in seconds, valid after the loop has run.
  const double* Flow(int route, double bytes, double at = 0) {
    ends.push_back(-1);
    double* end = &ends.back();
    loop.At(at, [this, route, bytes, end] {
      network.Start(route, bytes, [this, end] { *end = loop.Now(); });
    });
    return end;
  }
  std::deque<double> ends;
};
using FluidNetworkTest = Fixture;

TEST_F(FluidNetworkTest, AloneAFlowHasAllOfItsNarrowestResource) {
  const int wide = network.AddResource(100), narrow = network.AddResource(40);
  const double* end = Flow(network.AddRoute({wide, narrow}), 200);
  loop.Run();
  EXPECT_DOUBLE_EQ(*end, 5);
}

TEST_F(FluidNetworkTest, TwoFlowsOfOneRouteShareItAndTheLaterOneSpeedsUp) {
  const int route = network.AddRoute({network.AddResource(100)});
  const double* small = Flow(route, 100);
  const double* large = Flow(route, 300);
  loop.Run();
  EXPECT_NEAR(*small, 2, 1e-9);  // at 50 each
  EXPECT_NEAR(*large, 4, 1e-9);  // then alone
}

TEST_F(FluidNetworkTest, WhatOneFlowCannotTakeTheOthersGet) {
  // Max-min: the first is held at 10 elsewhere, so the two others have 45 each, not a third.
  const int shared = network.AddResource(100), slow = network.AddResource(10);
  const double* held = Flow(network.AddRoute({shared, slow}), 10);
  const double* a = Flow(network.AddRoute({shared}), 45);
  const double* b = Flow(network.AddRoute({shared, network.AddResource(60)}), 45);
  loop.Run();
  EXPECT_NEAR(*held, 1, 1e-9);
  EXPECT_NEAR(*a, 1, 1e-9);
  EXPECT_NEAR(*b, 1, 1e-9);
}

TEST_F(FluidNetworkTest, ALateFlowTakesItsShareFromThenOn) {
  const int route = network.AddRoute({network.AddResource(100)});
  const double* early = Flow(route, 200);
  const double* late = Flow(route, 50, 1);
  loop.Run();
  EXPECT_NEAR(*late, 2, 1e-9);
  EXPECT_NEAR(*early, 2.5, 1e-9);  // 100 alone, 50 shared, 50 alone
}

TEST_F(FluidNetworkTest, ARoutePassesAResourceTwiceAtHalfItsRate) {
  const int twice = network.AddResource(100);
  const double* end = Flow(network.AddRoute({twice, twice}), 100);
  loop.Run();
  EXPECT_NEAR(*end, 2, 1e-9);
}

TEST_F(FluidNetworkTest, WithoutLimitAtOnceAndThroughNothingNever) {
  const double infinite = std::numeric_limits<double>::infinity();
  const double* at_once = Flow(network.AddRoute({network.AddResource(infinite)}), 1e9);
  const double* never = Flow(network.AddRoute({network.AddResource(0)}), 1);
  loop.Run();
  EXPECT_EQ(*at_once, 0);
  EXPECT_EQ(*never, -1);
}

/// Rates by progressive filling over all flows at once, in small steps of time. Slow, and
/// independent of the network's own method.
std::vector<double> EndsBySteps(const std::vector<double>& capacity,
                                const std::vector<std::vector<int>>& uses,
                                std::vector<double> bytes) {
  std::vector<double> ends(bytes.size(), -1);
  double now = 0;
  while (true) {
    std::vector<double> rate(bytes.size(), 0), left = capacity;
    std::vector<bool> open(bytes.size());
    for (std::size_t f = 0; f < bytes.size(); ++f) open[f] = ends[f] < 0;
    while (true) {
      double grow = std::numeric_limits<double>::infinity();
      std::vector<int> through(capacity.size(), 0);
      for (std::size_t f = 0; f < bytes.size(); ++f)
        for (const int r : uses[f]) through[static_cast<std::size_t>(r)] += open[f];
      for (std::size_t r = 0; r < capacity.size(); ++r)
        if (through[r] > 0) grow = std::min(grow, left[r] / through[r]);
      if (!std::isfinite(grow)) break;
      for (std::size_t r = 0; r < capacity.size(); ++r) left[r] -= grow * through[r];
      for (std::size_t f = 0; f < bytes.size(); ++f) {
        if (!open[f]) continue;
        rate[f] += grow;
        for (const int r : uses[f])
          if (left[static_cast<std::size_t>(r)] < 1e-9) open[f] = false;
      }
    }
    double step = std::numeric_limits<double>::infinity();
    for (std::size_t f = 0; f < bytes.size(); ++f)
      if (ends[f] < 0) step = std::min(step, bytes[f] / rate[f]);
    if (!std::isfinite(step)) return ends;
    now += step;
    for (std::size_t f = 0; f < bytes.size(); ++f) {
      if (ends[f] >= 0) continue;
      bytes[f] -= step * rate[f];
      if (bytes[f] < 1e-7) ends[f] = now;
    }
  }
}

TEST_F(FluidNetworkTest, AgreesWithFillingAllFlowsAtOnce) {
  std::mt19937 random(11);
  auto draw = [&](int below) { return static_cast<int>(random() % static_cast<unsigned>(below)); };
  std::vector<double> capacity;
  for (int r = 0; r < 12; ++r) {
    capacity.push_back(10 + draw(90));
    network.AddResource(capacity.back());
  }
  std::vector<std::vector<int>> uses;
  std::vector<double> bytes;
  std::vector<const double*> ended;
  for (int f = 0; f < 40; ++f) {
    std::vector<int> through{draw(12)};
    for (int more = draw(3); more > 0; --more) {
      const int r = draw(12);
      if (std::find(through.begin(), through.end(), r) == through.end()) through.push_back(r);
    }
    uses.push_back(through);
    bytes.push_back(1 + draw(1000));
    ended.push_back(Flow(network.AddRoute(through), bytes.back()));
  }
  loop.Run();
  const auto expected = EndsBySteps(capacity, uses, bytes);
  for (std::size_t f = 0; f < bytes.size(); ++f) EXPECT_NEAR(*ended[f], expected[f], 1e-6) << f;
}

}  // namespace
}  // namespace adaptive_train::fluid_network_test
