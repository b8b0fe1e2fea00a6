// The supervisor with ranks that this test plays, over real sockets.
#include "launcher/steps/supervisor.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <atomic>
#include <functional>
#include <latch>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "core/rank_exit.h"
#include "core/token_proof.h"
#include "launcher/steps/stop_signals.h"

namespace adaptive_train::supervisor_test {
namespace {

namespace asio = boost::asio;
using asio::ip::tcp;
using std::chrono_literals::operator""ms;

constexpr int kRanks = 3;

/// What the step learns of its processes; the ranks' threads and the supervisor's share it.
struct Processes {
  std::mutex mutex;
  std::vector<RankEnd> ends;
  std::atomic<bool> killed{false};
};

class PlayedStep final : public JobStep {
 public:
  explicit PlayedStep(Processes& processes) : processes_(processes) {}
  void Poll() override {}
  bool Over() const override { return processes_.killed; }
  bool MayEndBeside() const override { return true; }
  std::vector<RankEnd> TakeEnds() override {
    const std::lock_guard lock(processes_.mutex);
    return std::exchange(processes_.ends, {});
  }
  std::string Trouble() const override { return ""; }
  std::string TroubledNode() const override { return ""; }
  bool TroubleMayPass() const override { return false; }
  void Kill(const std::string& /*step_id*/) override { processes_.killed = true; }

 private:
  Processes& processes_;
};

/// A rank's side of the control channel.
class PlayedRank {
 public:
  PlayedRank(const JobStepSpec& spec, int rank) : socket_(io_) {
    const std::string& addresses = spec.environment.at("ADAPTIVE_TRAIN_CONTROL");
    const auto port =
        static_cast<unsigned short>(std::stoi(addresses.substr(addresses.rfind(':') + 1)));
    socket_.connect({asio::ip::address_v4::loopback(), port});
    Hello hello{rank, "n" + std::to_string(rank + 1), 1, "", NewNonce(), ""};
    hello.proof =
        ProofOf(spec.environment.at("ADAPTIVE_TRAIN_TOKEN"), std::get<Challenge>(Hear()), hello);
    Say(hello);
    Say(Ready{});
  }
  /// False: the launcher has closed the connection.
  bool Say(const ControlMessage& message) {
    boost::system::error_code error;
    asio::write(socket_, asio::buffer(EncodeFrame(message)), error);
    return !error;
  }
  void BeatFor(std::chrono::milliseconds time) {
    const auto end = std::chrono::steady_clock::now() + time;
    while (std::chrono::steady_clock::now() < end && Say(Heartbeat{}))
      std::this_thread::sleep_for(50ms);
  }
  ControlMessage Hear() {
    for (;;) {
      if (auto message = reader_.Next(); message && *message) return std::move(**message);
      char block[1024];
      reader_.Feed(std::string_view(block, socket_.read_some(asio::buffer(block))));
    }
  }

 private:
  asio::io_context io_;
  tcp::socket socket_;
  FrameReader reader_;
};

class SupervisorTest : public testing::Test {
 protected:
  SupervisorTest() {
    for (int rank = 0; rank < kRanks; ++rank) {
      RankPlan of_rank;
      of_rank.rank = rank;
      of_rank.device.node = "n" + std::to_string(rank + 1);
      plan_.ranks.push_back(of_rank);
    }
  }
  ~SupervisorTest() override {
    for (std::thread& thread : ranks_) thread.join();
  }

  /// The first launch has ranks that `play` plays, each on a thread; there is no second one.
  RunOutcome Run(std::function<void(PlayedRank&, int rank)> play) {
    const auto start = [&](const JobStepSpec& spec) -> Result<std::unique_ptr<JobStep>> {
      if (!ranks_.empty()) return Fail("no second launch", ExitCode::kPreflight);
      for (int rank = 0; rank < kRanks; ++rank)
        ranks_.emplace_back([spec, rank, play] {
          PlayedRank played(spec, rank);
          play(played, rank);
        });
      return std::make_unique<PlayedStep>(processes_);
    };
    SupervisorEvents events;
    events.on_launch = [this](int attempt, const std::string& outcome, const std::string&) {
      launches_.push_back(std::to_string(attempt) + " " + outcome);
    };
    events.on_notice = [](const std::string&) {};
    JobStepSpec spec;
    spec.plan = &plan_;
    spec.mode = mode_;
    EndingSteps ending;
    return Supervisor(spec, start, std::move(events), ending).Run();
  }
  /// When rank 2 goes quiet, as one whose node is cut off.
  enum class Quiet { kNever, kFromItsHelloOn, kJustBefore };
  /// Rank 0 is not wired up; soon after rank 1 is killed.
  RunOutcome RunWithAKilledRank(Quiet quiet) {
    return Run([this, quiet](PlayedRank& played, int rank) {
      said_hello_.arrive_and_wait();
      const bool goes_quiet = rank == 2 && quiet != Quiet::kNever;
      if (!goes_quiet || quiet == Quiet::kJustBefore) played.BeatFor(900ms);
      if (goes_quiet) return std::this_thread::sleep_for(3500ms);
      if (rank == 0) played.Say(Unwired(rank));
      played.BeatFor(100ms);
      if (rank == 1) EndsKilled(rank);
      played.BeatFor(1000ms);
    });
  }
  void EndsKilled(int rank) {
    const std::lock_guard lock(processes_.mutex);
    processes_.ends.push_back({rank, "Killed", true, FailureKind::kKilled});
  }
  static RankFailure Unwired(int rank) {
    RankFailure failure;
    failure.rank = rank;
    failure.operation = "wire-up";
    failure.cause = "a peer does not answer";
    failure.exit_code = ToInt(RankExit::kWireup);
    return failure;
  }

  /// Ranks that measure nodes, and go on for as long as they may; `stop` is called by rank 0.
  RunOutcome RunMeasuring(std::function<void(PlayedRank&)> stop) {
    mode_ = "measure";
    return Run([this, stop](PlayedRank& played, int rank) {
      said_hello_.arrive_and_wait();
      played.Say(Wired{});
      played.BeatFor(300ms);
      if (rank == 0) stop(played);
      played.BeatFor(20'000ms);
    });
  }

  Plan plan_;
  std::string mode_;
  Processes processes_;
  std::latch said_hello_{kRanks};
  std::vector<std::thread> ranks_;
  std::vector<std::string> launches_;
};

TEST_F(SupervisorTest, ARankThatIsKilledExplainsWhyTheOthersAreNotWired) {
  const RunOutcome outcome = RunWithAKilledRank(Quiet::kNever);
  ASSERT_TRUE(outcome.failure) << outcome.message;
  EXPECT_EQ(outcome.failure->failure.kind, FailureKind::kKilled);
  EXPECT_EQ(outcome.failure->failure.rank, 1);
  EXPECT_EQ(launches_, std::vector<std::string>{"1 failed"});
}

TEST_F(SupervisorTest, ARankThatIsKilledExplainsNothingWhereAnotherHasGoneQuietBefore) {
  const RunOutcome outcome = RunWithAKilledRank(Quiet::kFromItsHelloOn);
  EXPECT_FALSE(outcome.failure) << outcome.message;
  EXPECT_EQ(outcome.message, "no second launch");
  EXPECT_EQ(launches_, std::vector<std::string>{"1 retried"});
}

/// Slurm kills the others of a step of which a rank has ended without PMIx_Finalize.
TEST_F(SupervisorTest, ARankThatIsKilledExplainsNothingWhereAnUnwiredOneHasEndedBefore) {
  const RunOutcome outcome = Run([this](PlayedRank& played, int rank) {
    said_hello_.arrive_and_wait();
    if (rank == 0) {
      played.Say(Unwired(rank));
      return;
    }
    played.BeatFor(300ms);
    if (rank == 1) EndsKilled(rank);
    played.BeatFor(1000ms);
  });
  EXPECT_FALSE(outcome.failure) << outcome.message;
  EXPECT_EQ(outcome.message, "no second launch");
  EXPECT_EQ(launches_, std::vector<std::string>{"1 retried"});
}

/// The kill is heard before the other's silence is long enough to count.
TEST_F(SupervisorTest, ARankThatIsKilledExplainsLessThanOneThatIsFoundSilentMeanwhile) {
  const RunOutcome outcome = RunWithAKilledRank(Quiet::kJustBefore);
  ASSERT_TRUE(outcome.failure) << outcome.message;
  EXPECT_EQ(outcome.silent_nodes, std::vector<std::string>{"n3"});
  EXPECT_EQ(outcome.failure->failure.kind, FailureKind::kNodeSilent);
  EXPECT_EQ(outcome.failure->failure.host, "n3");
  EXPECT_EQ(BlamedFor(*outcome.failure), Blamed::kNode);
  EXPECT_EQ(outcome.message,
            "rank 2 on n3 failed in wire-up: its node or link is down, for which rank 1 on n2 was "
            "killed");
}

TEST_F(SupervisorTest, AStopEndsRanksThatMeasureAtOnce) {
  const HeldSignals held;  // as callers do that have nothing to save
  const RunOutcome outcome = RunMeasuring([](PlayedRank&) { ::kill(::getpid(), SIGTERM); });
  EXPECT_EQ(outcome.code, ExitCode::kTerminated) << outcome.message;
  EXPECT_NE(outcome.message.find("nothing to save"), std::string::npos) << outcome.message;
}

TEST_F(SupervisorTest, AStopThatOnlyRanksGotEndsThoseThatMeasure) {
  const RunOutcome outcome = RunMeasuring([](PlayedRank& rank) { rank.Say(Signalled{SIGTERM}); });
  EXPECT_EQ(outcome.code, ExitCode::kTerminated) << outcome.message;
  EXPECT_NE(outcome.message.find("nothing to save"), std::string::npos) << outcome.message;
}

}  // namespace
}  // namespace adaptive_train::supervisor_test
