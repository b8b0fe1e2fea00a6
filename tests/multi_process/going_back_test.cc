// A whole run with a false profile: it moves to a plan that turns out slower, notices, goes back
// and reports it everywhere.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <CLI/CLI.hpp>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>
#include <vector>

#include "core/config.h"
#include "core/device_kind.h"
#include "core/file_io.h"
#include "core/seconds.h"
#include "launcher/commands/probe.h"
#include "launcher/run/plan_files.h"
#include "launcher/run/training.h"
#include "tests/unit/launcher/temporary_folder.h"

namespace adaptive_train::going_back_test {
namespace {

using testing::Contains;
using testing::ElementsAre;
using testing::StartsWith;

constexpr std::int64_t kSteps = 200;
/// With fewer processors the threads take turns, and wait for each other in every kernel.
constexpr int kTooManyThreads = 256;

/// One node, whose CPU counts as two devices: with one thread, and with far too many.
Cluster OneNodeTwoDevices(const std::string& host) {
  Cluster cluster;
  cluster.name = "test";
  Node& node = cluster.nodes.emplace_back();
  node.name = host;
  for (const int threads : {1, kTooManyThreads}) {
    Device& device = cluster.devices.emplace_back();
    device.node = host;
    device.kind = "cpu";
    device.index = static_cast<int>(cluster.devices.size()) - 1;
    device.model = "processor";
    device.memory_bytes = std::int64_t{4} << 30;
    device.threads = threads;
    device.cpus = threads;
  }
  return cluster;
}

/// Claims that one thread takes almost no time, and many threads ten times as long, so the first
/// plan uses one thread. The true time of one thread is then measured; the false figure of the
/// other remains.
Profile Lie(const Cluster& cluster, const std::string& model) {
  Profile profile;
  const Evidence sure{20, 0, EpochSecondsNow()};
  const std::string& host = cluster.nodes.front().name;
  profile.links.push_back({host, host, 1e-3, 1e9, sure});
  double seconds = 1e-7;
  for (const Device& device : cluster.devices) {
    for (const char* layer : {"embedding", "block", "head"})
      profile.layers.push_back(
          {DeviceKindName(device), model, layer, 1, seconds, 2 * seconds, 0, seconds, 0, sure});
    seconds *= 10;
  }
  return profile;
}

/// The beginnings of notices about moves; reasons of plans are indented.
std::vector<std::string> Moves(const std::string& out) {
  std::vector<std::string> moves;
  std::istringstream lines(out);
  for (std::string line; std::getline(lines, line);) {
    if (line.rfind("moving to ", 0) == 0 || line.rfind("going back ", 0) == 0)
      moves.push_back(line.substr(0, line.find(':')));
  }
  return moves;
}

class GoingBackTest : public testing::Test {
 protected:
  void SetUp() override {
    ::setenv("UCX_MEM_EVENTS", "no", 1);
    ::setenv("UCX_HANDLE_ERRORS", "none", 1);
    std::ofstream corpus(home_.Path() + "/corpus.txt");
    for (int i = 0; i < 30000; ++i) corpus << (i * i) % 97 << (i % 11 == 0 ? ".\n" : " ");
    std::ofstream(home_.Path() + "/config.toml")
        << "[model]\nlayers = 4\nheads = 2\nhidden = 64\nsequence = 64\n"
           "[data]\ntrain = \"corpus.txt\"\n[train]\nglobal_batch = 16\nvalidation_samples = 10\n"
           "steps = "
        << kSteps << "\n";
  }

  std::string Run() const { return home_.Path() + "/run"; }

  test::TemporaryFolder home_;
};

TEST_F(GoingBackTest, AMoveThatMadeStepsSlowerIsTakenBackOnceAndToldEverywhere) {
  HeldSignals held;
  const Allocation allocation = FindAllocation().value();
  ASSERT_FALSE(allocation.in_slurm);
  auto config = LoadConfig(home_.Path() + "/config.toml", {}).value();
  auto folder = RunFolder::Open(Run()).value();
  config.checkpoint.dir = Run() + "/checkpoints";
  ASSERT_TRUE(folder.Write("config.resolved.toml", ToToml(config)));
  const Programs programs = FindPrograms().value();
  auto ledger =
      JobLedger::Begin({&allocation, Run(), ToToml(config), "",
                        StoreChoice{"file:" + home_.Path() + "/store.db", "--store", true}})
          .value();
  RunStatistics statistics;
  const Cluster cluster = OneNodeTwoDevices(allocation.hosts.front());
  const ModelShape shape = ModelShape::Of(DimsOf(config.model), FormatOf(config.train));
  const PlanInputs inputs = InputsOf(config, cluster, Lie(cluster, ModelKey(shape)));
  Plan plan = PlanFor(inputs).value();
  ASSERT_EQ(plan.ranks.size(), 1u);
  ASSERT_EQ(plan.ranks[0].device.threads, 1);
  ASSERT_TRUE(WritePlan(folder, plan, inputs));

  testing::internal::CaptureStdout();
  const RunOutcome outcome = TrainRun(
      {config, allocation, programs, inputs, {}, folder, ledger, statistics, {}}, plan, held);
  const std::string out = testing::internal::GetCapturedStdout();
  std::printf("%s\n", out.c_str());
  EXPECT_EQ(outcome.code, ExitCode::kDone) << outcome.message;
  EXPECT_EQ(outcome.last_step, kSteps);
  EXPECT_THAT(Moves(out), ElementsAre("moving to another plan", "going back to the plan before"));

  const Plan last = PlanFromJson(ReadFile(Run() + "/plan.json", 1 << 20).value()).value();
  EXPECT_TRUE(SameLayout(last, plan));
  EXPECT_THAT(last.why, Contains(StartsWith("going back to the plan before: ")));
  // The slower plan's real time is known now, also to later jobs.
  const Profile learned = ledger.Known({cluster.name,
                                        {cluster.nodes[0].name},
                                        {DeviceKindName(cluster.devices[1])},
                                        ModelKey(shape),
                                        EpochSecondsNow()});
  double block_s = 0;
  for (const LayerMeasurement& layer : learned.layers)
    if (layer.layer == "block") block_s = std::max(block_s, layer.forward_s);
  EXPECT_GT(block_s, 1e-5);
  std::ifstream metrics(Run() + "/metrics.jsonl");
  std::int64_t steps = 0;
  for (std::string line; std::getline(metrics, line);) {
    const auto step = nlohmann::json::parse(line);
    EXPECT_EQ(step.at("step").get<std::int64_t>(), ++steps);
    // Products on far too many threads are slow; faster steps raise the peak.
    EXPECT_LE(step.at("mfu").get<double>(), 1) << "step " << steps;
  }
  EXPECT_EQ(steps, kSteps) << "each step once";
}

}  // namespace
}  // namespace adaptive_train::going_back_test

/// Local steps start this program again for the ranks.
int main(int argc, char** argv) {
  if (argc > 1 && std::string(argv[1]) == "local-step") {
    CLI::App app("", "going_back_test");
    std::function<int()> chosen;
    adaptive_train::AddLocalStepCommand(app, chosen);
    CLI11_PARSE(app, argc, argv);
    return chosen();
  }
  testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
