// Ranks that measure their layers, and move to another plan during training: the same losses, each
// step once. A signal or a lost rank during the move ends the run as usual.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>

#include "core/config.h"
#include "core/file_io.h"
#include "core/plan_shares.h"
#include "launcher/commands/probe.h"
#include "launcher/run/metrics_writer.h"
#include "launcher/steps/programs.h"
#include "launcher/steps/rank_environment.h"
#include "launcher/steps/stop_signals.h"
#include "launcher/steps/supervisor.h"
#include "tests/sanitized.h"
#include "tests/unit/launcher/temporary_folder.h"

namespace adaptive_train::move_test {
namespace {

using testing::Each;
using testing::Gt;
using testing::SizeIs;

constexpr std::int64_t kSteps = 60;
constexpr std::int64_t kWarmupSteps = 3;
/// A launcher's words have to arrive between two steps. With a sanitizer these are long in any case.
constexpr int kSequence = kSanitized ? 8 : 64;

/// One replica per share, all on this machine.
Plan PlanOf(const std::vector<std::int64_t>& shares) {
  Plan plan;
  plan.data = static_cast<int>(shares.size());
  plan.stages.resize(1);
  plan.stages[0].chunks = {{0, 6}};
  for (std::size_t i = 0; i < shares.size(); ++i) {
    RankPlan rank;
    rank.rank = rank.replica = static_cast<int>(i);
    rank.device.node = "here";
    rank.device.kind = "cpu";
    rank.first_sample = plan.global_batch;
    rank.samples = shares[i];
    rank.micro_batch = std::min<std::int64_t>(shares[i], 2);
    plan.global_batch += shares[i];
    plan.stages[0].ring.push_back(rank.rank);
    plan.ranks.push_back(rank);
  }
  return plan;
}

/// A run folder with a small model, and the events of its ranks.
class MoveTest : public testing::Test {
 protected:
  void SetUp() override {
    ::setenv("UCX_MEM_EVENTS", "no", 1);
    ::setenv("UCX_HANDLE_ERRORS", "none", 1);
    std::ofstream corpus(home_.Path() + "/corpus.txt");
    for (int i = 0; i < 30000; ++i) corpus << (i * i) % 97 << (i % 11 == 0 ? ".\n" : " ");
    WriteConfig(kSteps);
  }

  void WriteConfig(std::int64_t steps, const std::string& more = "") {
    std::ofstream(home_.Path() + "/config.toml")
        << "[model]\nlayers = 4\nheads = 2\nhidden = 64\nsequence = " << kSequence
        << "\n[data]\ntrain = \"corpus.txt\"\n[train]\nglobal_batch = 10\nsteps = " << steps
        << "\n[profile]\nwarmup_steps = " << kWarmupSteps << "\n"
        << more;
  }

  /// Writes the run folder's configuration and plan, and runs the ranks to their end. `on_step`
  /// gets the last step of all ranks.
  RunOutcome Run(const std::string& name, const Plan& plan,
                 const std::function<void(Supervisor&, std::int64_t)>& on_step = {}) {
    auto folder = RunFolder::Open(home_.Path() + "/" + name).value();
    auto config = LoadConfig(home_.Path() + "/config.toml", {}).value();
    config.checkpoint.dir = folder.Path() + "/checkpoints";
    EXPECT_TRUE(folder.Write("config.resolved.toml", ToToml(config)));
    EXPECT_TRUE(folder.Write("plan.json", ToJson(plan)));
    MetricsWriter metrics(folder);
    Supervisor* running = nullptr;
    SupervisorEvents events;
    events.on_launch = [](int, const std::string&, const std::string&) {};
    events.on_notice = [](const std::string& line) { std::printf("%s\n", line.c_str()); };
    events.on_decision = [](const Decision&) {};
    if (on_stop_) events.on_stop = on_stop_;
    events.on_saved = [this](const Saved& saved) { saved_.push_back(saved); };
    events.on_resumed = [&](const Resumed& resumed) { return metrics.ResumeAfter(resumed.step); };
    events.on_layer_times = [this](int rank, const LayerTimes& times) {
      times_[rank].push_back(times);
    };
    events.on_step = [&](std::span<const RankMetrics> ranks) {
      if (on_step) on_step(*running, ranks.front().step);
      if (seen_) seen_(ranks);
      return metrics.Add(CombineRanks(ranks));
    };
    JobStepSpec spec;
    spec.plan = &plan;
    spec.run_dir = folder.Path();
    spec.worker = FindPrograms().value().worker;
    spec.environment = RankEnvironment(CurrentEnvironment());
    EndingSteps ending;
    Supervisor supervisor(spec, LocalSteps(), std::move(events), ending);
    running = &supervisor;
    held_.Release();
    RunOutcome outcome = supervisor.Run();
    held_.Hold();
    EXPECT_TRUE(metrics.Finish(std::chrono::seconds(60)));
    std::printf("ended with %d after step %ld: %s\n", ToInt(outcome.code),
                static_cast<long>(outcome.last_step), outcome.message.c_str());
    return outcome;
  }

  /// The losses of metrics.jsonl, whose steps must be 1, 2, 3, ...
  std::vector<double> Losses(const std::string& name) {
    std::ifstream file(home_.Path() + "/" + name + "/metrics.jsonl");
    std::vector<double> losses;
    for (std::string line; std::getline(file, line);) {
      const auto step = nlohmann::json::parse(line);
      EXPECT_EQ(step.at("step").get<std::size_t>(), losses.size() + 1);
      losses.push_back(step.at("loss").get<double>());
    }
    return losses;
  }

  void ExpectLossesAgree(const std::string& a, const std::string& b) {
    const auto of_a = Losses(a), of_b = Losses(b);
    ASSERT_THAT(of_a, SizeIs(kSteps));
    ASSERT_THAT(of_b, SizeIs(kSteps));
    for (std::size_t i = 0; i < of_a.size(); ++i)
      EXPECT_NEAR(of_a[i], of_b[i], 1e-4 * of_a[i]) << "step " << i + 1;
  }

  void ExpectSharesChange(const std::string& name, const Plan& plan,
                          const std::vector<Shares>& then);

  test::TemporaryFolder home_;
  HeldSignals held_;
  std::map<int, std::vector<LayerTimes>> times_;
  std::vector<Saved> saved_;
  std::function<void(std::span<const RankMetrics>)> seen_;
  std::function<std::optional<StopLimits>()> on_stop_;
};

/// The process of a rank of a run folder. Other tests' ranks may run at the same time.
pid_t PidOf(const std::string& run_dir, int rank) {
  for (const auto& entry : std::filesystem::directory_iterator("/proc")) {
    const pid_t pid = std::atoi(entry.path().filename().c_str());
    if (pid <= 0) continue;
    std::ifstream comm(entry.path() / "comm"), environ(entry.path() / "environ");
    std::string word;
    if (!std::getline(comm, word) || word.rfind("adaptive-train-", 0) != 0) continue;
    bool ours = false, right = false;
    while (std::getline(environ, word, '\0')) {
      ours = ours || word == "ADAPTIVE_TRAIN_RUN_DIR=" + run_dir;
      right = right || word == "PMIX_RANK=" + std::to_string(rank);
    }
    if (ours && right) return pid;
  }
  return -1;
}

TEST_F(MoveTest, GoesOnByAnotherPlanWithTheSameLossesAndEveryStepOnce) {
  ASSERT_EQ(Run("whole", PlanOf({10})).code, ExitCode::kDone);
  const RunOutcome first =
      Run("run", PlanOf({3, 3, 2, 2}), [](Supervisor& ranks, std::int64_t step) {
        if (step == 8) ranks.Move();
      });
  EXPECT_EQ(first.code, ExitCode::kDone) << first.message;
  EXPECT_TRUE(first.moved);
  EXPECT_GE(first.last_step, 8);
  ASSERT_LT(first.last_step, kSteps);
  EXPECT_EQ(saved_.back().step, first.last_step);
  EXPECT_GT(saved_.back().seconds, 0);
  // Fewer ranks, other shares, then more again.
  const RunOutcome second =
      Run("run", PlanOf({7, 2, 1}), [&](Supervisor& ranks, std::int64_t step) {
        if (step == first.last_step + 3) ranks.Move();
      });
  EXPECT_TRUE(second.moved);
  ASSERT_LT(second.last_step, kSteps);
  const RunOutcome last = Run("run", PlanOf({1, 4, 4, 1}));
  EXPECT_EQ(last.code, ExitCode::kDone) << last.message;
  EXPECT_FALSE(last.moved);
  EXPECT_EQ(last.last_step, kSteps);
  ExpectLossesAgree("whole", "run");
}

/// The same shares on two stages, in micro-batches of 1.
Plan StagedPlanOf(const std::vector<std::int64_t>& shares) {
  Plan plan = PlanOf(shares);
  plan.stages[0].chunks = {{0, 3}};
  plan.stages.push_back(plan.stages[0]);
  plan.stages[1].chunks = {{3, 6}};
  const std::vector<RankPlan> first = plan.ranks;
  for (RankPlan rank : first) {
    rank.rank += plan.data;
    rank.stage = 1;
    plan.ranks.push_back(rank);
  }
  for (RankPlan& rank : plan.ranks) rank.micro_batch = 1;
  return plan;
}

/// The same shares on two tensor ranks each.
Plan TensorPlanOf(const std::vector<std::int64_t>& shares) {
  Plan plan = PlanOf(shares);
  const std::vector<RankPlan> first = std::exchange(plan.ranks, {});
  plan.tensor = 2;
  for (RankPlan rank : first) {
    for (rank.tensor_rank = 0; rank.tensor_rank < 2; ++rank.tensor_rank) {
      rank.rank = static_cast<int>(plan.ranks.size());
      plan.ranks.push_back(rank);
    }
  }
  return plan;
}

/// Without a restart, one after another.
void MoveTest::ExpectSharesChange(const std::string& name, const Plan& plan,
                                  const std::vector<Shares>& then) {
  SCOPED_TRACE(name);
  saved_.clear();
  std::map<std::int64_t, Shares> shares;  // of each step
  seen_ = [&](std::span<const RankMetrics> ranks) {
    for (int replica = 0; replica < plan.data; ++replica)
      shares[ranks[0].step].push_back(
          ranks[static_cast<std::size_t>(replica * plan.tensor)].samples);
  };
  // The launcher may ask for the next ones before the ranks have taken up the last ones.
  const RunOutcome outcome = Run(name, plan, [&](Supervisor& ranks, std::int64_t step) {
    if (step == 8) ranks.ChangeShares(then[0]);
    if (step == 30) ranks.ChangeShares(then[1]), ranks.ChangeShares(then[2]);
  });
  seen_ = {};
  EXPECT_EQ(outcome.code, ExitCode::kDone) << outcome.message;
  EXPECT_EQ(outcome.last_step, kSteps);
  EXPECT_THAT(saved_, SizeIs(1)) << "the last state only";
  std::vector<Shares> seen;
  for (const auto& [step, of_step] : shares)
    if (seen.empty() || seen.back() != of_step) seen.push_back(of_step);
  std::vector<Shares> expected{ReplicaSharesOf(plan)};
  expected.insert(expected.end(), then.begin(), then.end());
  EXPECT_EQ(seen, expected) << "all ranks at the same step, in this order";
  EXPECT_EQ(shares[8], expected[0]);
}

/// With the losses of one rank that has all samples.
TEST_F(MoveTest, TakesOtherSharesWithoutARestart) {
  ASSERT_EQ(Run("whole", PlanOf({10})).code, ExitCode::kDone);
  const std::vector<Shares> of_four = {{1, 6, 2, 1}, {4, 1, 1, 4}, {3, 3, 2, 2}};
  for (const int shard : {0, 1, 2}) {
    Plan plan = PlanOf({3, 3, 2, 2});
    plan.shard = shard;
    const std::string name = "shard" + std::to_string(shard);
    ExpectSharesChange(name, plan, of_four);
    ExpectLossesAgree("whole", name);
  }
  // What is held back follows from a rank's own samples; replicas are compared after step 50.
  Plan compressed = PlanOf({3, 3, 2, 2});
  compressed.orders.compression.mode = CompressionMode::kTopk;
  compressed.orders.compression.values = ValueEncoding::kBf16;
  ExpectSharesChange("compressed", compressed, of_four);
}

TEST_F(MoveTest, StagesAndTensorRanksTakeOtherSharesAsWell) {
  ASSERT_EQ(Run("whole", PlanOf({10})).code, ExitCode::kDone);
  const std::vector<Shares> of_two = {{2, 8}, {7, 3}, {5, 5}};
  ExpectSharesChange("stages", StagedPlanOf({5, 5}), of_two);
  ExpectLossesAgree("whole", "stages");
  ExpectSharesChange("tensor", TensorPlanOf({5, 5}), of_two);
  ExpectLossesAgree("whole", "tensor");
}

TEST_F(MoveTest, SharesThatDoNotFitEndTheRunWithTheirFault) {
  const RunOutcome outcome = Run("run", PlanOf({5, 5}), [](Supervisor& ranks, std::int64_t step) {
    if (step == 8) ranks.ChangeShares({5, 6});
  });
  EXPECT_EQ(outcome.code, ExitCode::kRankFailure);
  EXPECT_THAT(outcome.message,
              testing::HasSubstr("a share of 6 sequences in a global batch of 10"));
}

TEST_F(MoveTest, EveryRankTellsItsLayerTimesAfterTheWarmUpAndWhenAsked) {
  std::map<std::int64_t, std::size_t> told;  // reported by the end of a step
  const RunOutcome outcome =
      Run("run", PlanOf({5, 4, 1}), [&](Supervisor& ranks, std::int64_t step) {
        told[step] = times_[0].size() + times_[1].size() + times_[2].size();
        if (step == 10) ranks.MeasureLayers();
      });
  EXPECT_EQ(outcome.code, ExitCode::kDone) << outcome.message;
  EXPECT_EQ(told[kWarmupSteps - 1], 0u);
  EXPECT_EQ(told[10], 3u);
  for (int rank = 0; rank < 3; ++rank) ASSERT_THAT(times_[rank], SizeIs(2));
  // Micro-batches of 2 and a last one of 1; of 2 alone; of 1 alone.
  EXPECT_THAT(times_[0][0].entries, SizeIs(6));
  EXPECT_THAT(times_[1][0].entries, SizeIs(3));
  EXPECT_EQ(times_[1][0].entries[1].layer, "block");
  EXPECT_EQ(times_[1][0].entries[1].micro_batch, 2);
  EXPECT_EQ(times_[1][0].entries[1].evidence.count, 2 * (kWarmupSteps - 1));
  EXPECT_EQ(times_[2][1].entries[1].micro_batch, 1);
  for (const auto& [rank, all] : times_) {
    for (const LayerTimes& times : all) {
      EXPECT_THAT(times.variances, SizeIs(6));
      EXPECT_THAT(times.variances, Each(Gt(0)));
      for (const LayerMeasurement& entry : times.entries) {
        EXPECT_GT(entry.forward_s, 0);
        EXPECT_GT(entry.backward_s, 0);
        EXPECT_GT(entry.update_s, 0);
      }
    }
  }
}

TEST_F(MoveTest, AStopOnTheWayEndsTheRunSaved) {
  const RunOutcome outcome = Run("run", PlanOf({5, 5}), [](Supervisor& ranks, std::int64_t step) {
    if (step != 8) return;
    ranks.Move();
    ::kill(::getpid(), SIGINT);
  });
  EXPECT_EQ(outcome.code, ExitCode::kInterrupted) << outcome.message;
  EXPECT_FALSE(outcome.moved);
  ASSERT_FALSE(saved_.empty());
  EXPECT_EQ(saved_.back().step, outcome.last_step);
}

/// A save that is under way takes 3 s or more for its last block.
TEST_F(MoveTest, AStopWithoutTimeForASaveEndsTheOneThatIsUnderWay) {
  constexpr std::int64_t kEvery = 8;
  const std::string slow_disk = home_.Path() + "/slow_disk.so";
  std::filesystem::copy_file(SLOW_DISK_LIBRARY, slow_disk);
  std::ofstream(home_.Path() + "/SLOW_DISK") << 3000;
  WriteConfig(1'000'000, "[checkpoint]\nevery = " + std::to_string(kEvery) + "\n");
  on_stop_ = [] { return StopLimits{.end_s = 300, .too_long = "there is no time for another"}; };
  ::setenv("LD_PRELOAD", slow_disk.c_str(), 1);
  // Preloaded it comes before the sanitizer's runtime.
  ::setenv("ASAN_OPTIONS", "verify_asan_link_order=0", 1);
  const RunOutcome outcome = Run("run", PlanOf({5, 5}), [&](Supervisor&, std::int64_t step) {
    if (step == kEvery + 2) ::kill(::getpid(), SIGTERM);
  });
  ::unsetenv("LD_PRELOAD");
  ::unsetenv("ASAN_OPTIONS");
  EXPECT_EQ(outcome.message, "stopped by Terminated without saving: there is no time for another");
  EXPECT_GE(outcome.last_step, kEvery + 2);
  EXPECT_TRUE(outcome.unsaved);
  ASSERT_THAT(saved_, SizeIs(1));
  EXPECT_EQ(saved_[0].step, kEvery);
  EXPECT_TRUE(std::filesystem::exists(saved_[0].path + "/DONE"));
}

TEST_F(MoveTest, RanksTrainOnUntilItIsKnownWhatAStopMayTake) {
  constexpr std::int64_t kAsked = 8, kKnown = 40;
  WriteConfig(1'000'000);
  std::int64_t last = 0;
  on_stop_ = [&]() -> std::optional<StopLimits> {
    if (last < kKnown) return std::nullopt;
    return StopLimits{.too_long = "there is no time"};
  };
  const RunOutcome outcome = Run("run", PlanOf({5, 5}), [&](Supervisor&, std::int64_t step) {
    last = step;
    if (step == kAsked) ::kill(::getpid(), SIGTERM);
  });
  EXPECT_EQ(outcome.message, "stopped by Terminated without saving: there is no time");
  EXPECT_GE(outcome.last_step, kKnown);
  EXPECT_TRUE(outcome.unsaved);
  EXPECT_THAT(saved_, SizeIs(0));
}

TEST_F(MoveTest, AStopBetweenTwoPlansIsHeardByTheNext) {
  const RunOutcome first = Run("run", PlanOf({5, 5}), [](Supervisor& ranks, std::int64_t step) {
    if (step == 8) ranks.Move();
  });
  ASSERT_TRUE(first.moved);
  ::kill(::getpid(), SIGTERM);
  const RunOutcome second = Run("run", PlanOf({4, 6}));
  EXPECT_EQ(second.code, ExitCode::kTerminated) << second.message;
  EXPECT_EQ(second.last_step, 0);
}

TEST_F(MoveTest, ARankLostOnTheWayIsAFailure) {
  const RunOutcome outcome =
      Run("run", PlanOf({5, 5}), [this](Supervisor& ranks, std::int64_t step) {
        if (step != 8) return;
        const pid_t pid = PidOf(home_.Path() + "/run", 1);
        ASSERT_GT(pid, 0);
        ranks.Move();
        ::kill(pid, SIGKILL);
      });
  EXPECT_EQ(outcome.code, ExitCode::kRankFailure);
  EXPECT_FALSE(outcome.moved);
  EXPECT_THAT(outcome.message, testing::HasSubstr("rank 1"));
}

}  // namespace
}  // namespace adaptive_train::move_test

/// Local steps start this program again for the ranks.
int main(int argc, char** argv) {
  if (argc > 1 && std::string(argv[1]) == "local-step") {
    CLI::App app("", "move_test");
    std::function<int()> chosen;
    adaptive_train::AddLocalStepCommand(app, chosen);
    CLI11_PARSE(app, argc, argv);
    return chosen();
  }
  testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
