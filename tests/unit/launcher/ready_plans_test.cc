// Plans made beside training for the loss of each node: the same as planning after the loss, thrown
// away with what they were made from, given up at once.
#include "launcher/run/ready_plans.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <atomic>
#include <chrono>
#include <future>
#include <thread>

#include "core/file_io.h"
#include "launcher/planner/equal_nodes.h"

namespace adaptive_train::ready_plans_test {
namespace {

using testing::Contains;
using testing::Each;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;

using Nodes = std::vector<std::string>;

/// Two kinds of GPUs on nodes old1, old2, old3 and new1, new2, and CPUs on cpu1 to cpu4; a slow link
/// between old1 and old3.
PlanInputs Lab() {
  PlanInputs inputs;
  const std::string file = std::string(SOURCE_DIR) + "/examples/clusters/lab.json";
  inputs.cluster = ClusterFromJson(ReadFile(file, 1 << 20).value()).value();
  inputs.dims = {8, 4, 256, 128, 4096, true};
  inputs.request.global_batch = 64;
  inputs.request.runnable_only = true;
  inputs.request.even_shares = true;  // planned soon
  return inputs;
}

PlanInputs Without(PlanInputs inputs, const std::string& node) {
  LeaveOut(node, inputs.cluster);
  return inputs;
}

/// Waits for it: the thread works when nobody else does.
std::optional<Plan> ReadyPlan(ReadyPlans& ready, const PlanInputs& inputs,
                              const std::vector<SpareNode>& spares, const std::string& lost,
                              const std::function<bool()>& made) {
  while (!made()) std::this_thread::sleep_for(std::chrono::milliseconds(5));
  return ready.Take({lost}, inputs, spares);
}

/// Plans as a run does, and counts the plans that were asked for.
struct Counted {
  std::shared_ptr<std::atomic<int>> made = std::make_shared<std::atomic<int>>(0);

  ReadyPlans::Make Make() const {
    return [made = made](const PlanInputs& inputs, const std::stop_token& stop) {
      auto plan = PlanFor(inputs, stop);
      ++*made;  // handed over when the next one is counted
      return plan;
    };
  }
};

TEST(EqualNodes, AreThoseThatCanBeExchanged) {
  const PlanInputs lab = Lab();
  const auto classes = [](const PlanInputs& inputs) {
    return EqualNodes(inputs.cluster, inputs.dims, inputs.format, inputs.profile, inputs.request);
  };
  EXPECT_THAT(classes(lab), ElementsAre(Nodes{"new1", "new2"}, Nodes{"old1", "old3"}, Nodes{"old2"},
                                        Nodes{"cpu1", "cpu2", "cpu3", "cpu4"}));
  EXPECT_THAT(classes(Without(lab, "old2")), Not(Contains(Contains("old2"))));

  PlanInputs measured = lab;  // one link of new2 and one of cpu3, once each way
  measured.profile.links.push_back({"new2", "cpu3", 1e-5, 1e8, {1, 0, 0}});
  EXPECT_THAT(classes(measured),
              ElementsAre(Nodes{"new1"}, Nodes{"new2"}, Nodes{"old1", "old3"}, Nodes{"old2"},
                          Nodes{"cpu1", "cpu2", "cpu4"}, Nodes{"cpu3"}));
  PlanInputs failed = lab;
  failed.profile.nodes.push_back({"cpu2", 1.5});
  EXPECT_THAT(classes(failed).back(), ElementsAre("cpu2"));
}

TEST(Exchanged, NamesTheOtherNodeEverywhereAndNoLongerOne) {
  Plan plan;
  plan.ranks.resize(2);
  plan.ranks[0].device.node = "n1";
  plan.ranks[1].device.node = "n10";
  plan.why = {"n1 is left out: n10 is not, n2 neither"};
  const Plan exchanged = Exchanged(plan, "n1", "n2");
  EXPECT_EQ(exchanged.ranks[0].device.node, "n2");
  EXPECT_EQ(exchanged.ranks[1].device.node, "n10");
  EXPECT_THAT(exchanged.why, ElementsAre("n2 is left out: n10 is not, n1 neither"));
}

/// A single node's plan is ready when the thread asks for the next one.
TEST(ReadyPlans, IsWhatPlanningAfterTheLossGives) {
  const PlanInputs lab = Lab();
  // The first of each class, in the order in which plans are made.
  const Nodes first = {"new1", "old1", "old2"};
  for (std::size_t i = 0; i < first.size(); ++i) {
    const Counted counted;
    ReadyPlans ready(counted.Make());
    ready.Prepare(lab, {}, "");
    const auto plan = ReadyPlan(ready, lab, {}, first[i],
                                [&] { return *counted.made > static_cast<int>(i) + 1; });
    ASSERT_TRUE(plan) << first[i];
    EXPECT_EQ(ToJson(*plan), ToJson(PlanFor(Without(lab, first[i])).value())) << first[i];
  }
}

TEST(ReadyPlans, ServesEachEqualNodeWithAPlanAsGood) {
  const PlanInputs lab = Lab();
  const Counted counted;
  ReadyPlans ready(counted.Make());
  ready.Prepare(lab, {}, "");
  const auto plan = ReadyPlan(ready, lab, {}, "old3", [&] { return *counted.made > 2; });
  ASSERT_TRUE(plan);
  for (const RankPlan& rank : plan->ranks) EXPECT_NE(rank.device.node, "old3");
  EXPECT_THAT(plan->why, Each(Not(HasSubstr("old3")))) << "the plan was made without old1";
  const PlanInputs left = Without(lab, "old3");
  const auto priced =
      PriceAgain(*plan, left.cluster, left.dims, left.format, left.profile, left.request);
  ASSERT_TRUE(priced) << priced.error().message;
  EXPECT_DOUBLE_EQ(*priced->step_seconds, *plan->step_seconds);
  EXPECT_NEAR(*priced->step_seconds, *PlanFor(left)->step_seconds, 0.01 * *plan->step_seconds);
}

TEST(ReadyPlans, TheLastSpareTakesTheLostNodesPlace) {
  PlanInputs inputs = Lab();
  std::vector<SpareNode> spares = {{"cpu4", ""}, {"new2", ""}};
  KeepAside(spares, inputs.cluster);
  const Counted counted;
  ReadyPlans ready(counted.Make());
  ready.Prepare(inputs, spares, "");
  const auto plan = ReadyPlan(ready, inputs, spares, "new1", [&] { return *counted.made > 1; });
  ASSERT_TRUE(plan);
  PlanInputs left = Without(inputs, "new1");
  PutIn(spares.back(), left.cluster);
  EXPECT_EQ(ToJson(*plan), ToJson(PlanFor(left).value()));
}

TEST(ReadyPlans, NothingIsReadyFromOtherInputsNorForTwoNodes) {
  const PlanInputs lab = Lab();
  PlanInputs measured = lab, smaller = Without(lab, "cpu4");
  measured.profile.links.push_back({"new1", "old1", 1e-5, 1e8, {1, 0, 0}});
  const std::vector<SpareNode> spares = {{"cpu4", ""}};
  struct Case {
    Nodes lost;
    const PlanInputs& inputs;
    std::vector<SpareNode> spares;
  };
  for (const Case& other : {Case{{"new1"}, measured, {}}, Case{{"new1"}, smaller, {}},
                            Case{{"new1"}, lab, spares}, Case{{"new1", "old2"}, lab, {}}}) {
    const Counted counted;
    ReadyPlans ready(counted.Make());
    ready.Prepare(lab, {}, "");
    while (*counted.made < 2) std::this_thread::sleep_for(std::chrono::milliseconds(5));
    EXPECT_FALSE(ready.Take(other.lost, other.inputs, other.spares));
  }
  const Counted counted;
  ReadyPlans ready(counted.Make());
  EXPECT_FALSE(ready.Take({"new1"}, lab, {})) << "nothing was prepared";
  ready.Prepare(lab, {}, "");
  while (*counted.made < 2) std::this_thread::sleep_for(std::chrono::milliseconds(5));
  ready.Prepare(measured, {}, "");
  EXPECT_FALSE(ready.Take({"new1"}, lab, {})) << "the newest measurements count";
}

TEST(ReadyPlans, TheSameInputsAreNotPlannedAgainAndASafeNodeIsNotLost) {
  PlanInputs inputs = Lab();
  for (const char* node : {"old1", "old2", "old3", "cpu1", "cpu2", "cpu3", "cpu4"})
    LeaveOut(node, inputs.cluster);
  const Counted counted;
  ReadyPlans ready(counted.Make());
  ready.Prepare(inputs, {}, "new1");
  while (*counted.made < 1) std::this_thread::sleep_for(std::chrono::milliseconds(5));
  for (int again = 0; again < 10; ++again) ready.Prepare(inputs, {}, "new1");
  std::optional<Plan> plan;
  EXPECT_FALSE(ready.Take({}, inputs, {})) << "a process died, its node lives";
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  EXPECT_EQ(*counted.made, 1);
  EXPECT_FALSE(ready.Take({"new1"}, inputs, {}));
}

TEST(ReadyPlans, WorksLastAndStopsAtOnceWhileItPlans) {
  std::promise<int> nice;
  std::atomic<int> stopped = 0;
  {
    ReadyPlans ready([&](const PlanInputs&, const std::stop_token& stop) -> Result<Plan> {
      if (stopped == 0) nice.set_value(::getpriority(PRIO_PROCESS, 0));
      while (!stop.stop_requested()) std::this_thread::sleep_for(std::chrono::milliseconds(1));
      ++stopped;
      return Fail("stopped");
    });
    ready.Prepare(Lab(), {}, "");
    EXPECT_EQ(nice.get_future().get(), 19);
    ready.Prepare(Without(Lab(), "cpu1"), {}, "");  // the first thread ends, another begins
  }
  EXPECT_GE(stopped, 1);
}

/// A large cluster, whose plan takes seconds.
TEST(PlanFor, FailsSoonAfterAStop) {
  PlanInputs inputs = Lab();
  inputs.cluster = ClusterFromJson(R"({"format_version": 1, "name": "large", "groups": [
    {"prefix": "a", "nodes": 60, "nic_gbit_per_s": 25, "latency_us": 10, "device":
      {"kind": "cuda", "model": "A", "count": 8, "memory_gib": 24, "tflops": 140, "copy_gb_per_s": 450}},
    {"prefix": "b", "nodes": 60, "nic_gbit_per_s": 10, "latency_us": 15, "device":
      {"kind": "cuda", "model": "B", "count": 4, "memory_gib": 16, "tflops": 90, "copy_gb_per_s": 380}}]})")
                       .value();
  inputs.dims = {48, 16, 2048, 1024, 50304, true};
  inputs.request.even_shares = false;
  inputs.request.global_batch = 2048;
  std::stop_source source;
  auto planning =
      std::async(std::launch::async, [&] { return PlanFor(inputs, source.get_token()); });
  std::this_thread::sleep_for(std::chrono::milliseconds(100));
  source.request_stop();
  const Result<Plan> plan = planning.get();
  ASSERT_FALSE(plan);
  EXPECT_EQ(plan.error().message, "planning was stopped");
}

}  // namespace
}  // namespace adaptive_train::ready_plans_test
