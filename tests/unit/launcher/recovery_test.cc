#include "launcher/run/recovery.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace adaptive_train::recovery_test {
namespace {

using testing::ElementsAre;
using testing::Field;
using testing::IsEmpty;
using testing::Optional;

/// Ranks that trained up to `last_step`, and then failed.
RunOutcome Failed(std::int64_t last_step, std::vector<std::string> silent_nodes = {}) {
  RunOutcome outcome;
  outcome.code = ExitCode::kRankFailure;
  outcome.failure.emplace();
  outcome.failure->failure.kind =
      silent_nodes.empty() ? FailureKind::kKilled : FailureKind::kNodeSilent;
  outcome.trained = true;
  outcome.last_step = last_step;
  outcome.silent_nodes = std::move(silent_nodes);
  return outcome;
}

TEST(Recovery, SilentNodesAreLeftOutButForTheLaunchers) {
  Recovery recovery({.attempts = 3, .own_node = "n1"});
  EXPECT_THAT(recovery.After(Failed(5)), Optional(Field(&Recovery::Loss::nodes, IsEmpty())));
  EXPECT_THAT(recovery.After(Failed(9, {"n1", "n3", "n4"})),
              Optional(Field(&Recovery::Loss::nodes, ElementsAre("n3", "n4"))));
  EXPECT_EQ(recovery.Count(), 2);
}

/// A rank of `node` that ended.
RunOutcome Ended(const std::string& node, std::int64_t last_step) {
  RunOutcome outcome = Failed(last_step);
  outcome.failure->failure.rank = 1;
  outcome.failure->failure.host = node;
  return outcome;
}

TEST(Recovery, ANodeWhereRanksEndTwiceWithoutANewStepIsDoubtful) {
  Recovery recovery({.attempts = 9, .own_node = ""});
  EXPECT_EQ(recovery.After(Ended("n2", 5))->doubtful, "");
  EXPECT_EQ(recovery.After(Ended("n2", 6))->doubtful, "");
  EXPECT_EQ(recovery.After(Ended("n3", 6))->doubtful, "");
  EXPECT_EQ(recovery.After(Ended("n3", 6))->doubtful, "n3");
  RunOutcome accused = Ended("n4", 6);
  accused.failure->hearsay = true;
  EXPECT_EQ(recovery.After(accused)->doubtful, "");
  EXPECT_EQ(recovery.After(accused)->doubtful, "");
  RunOutcome silent = Ended("n4", 6);
  silent.silent_nodes = {"n4"};
  EXPECT_EQ(recovery.After(silent)->doubtful, "");
  EXPECT_EQ(recovery.After(silent)->doubtful, "");
}

TEST(Recovery, FailuresInARowEndTheRunAndANewStepForgivesThem) {
  Recovery recovery({.attempts = 2, .own_node = ""});
  EXPECT_TRUE(recovery.After(Failed(5)));
  EXPECT_TRUE(recovery.After(Failed(5)));
  EXPECT_TRUE(recovery.After(Failed(6)));
  EXPECT_TRUE(recovery.After(Failed(4)));
  // The steps to 6 were done before.
  EXPECT_FALSE(recovery.After(Failed(6)));
}

TEST(Recovery, WhatWouldComeAgainEndsTheRun) {
  Recovery recovery({.attempts = 9, .own_node = ""});
  RunOutcome never_trained = Failed(0);
  never_trained.trained = false;
  never_trained.failure->failure.kind = FailureKind::kLaunch;
  EXPECT_FALSE(recovery.After(never_trained));
  RunOutcome reported = Failed(5);
  reported.failure->reported = true;
  EXPECT_FALSE(recovery.After(reported));
  // Training has been seen: a launch that fails is one of the attempts.
  EXPECT_TRUE(recovery.After(never_trained));
}

TEST(Recovery, WhatCameFromOutsideBeforeThereWasAStepIsGoneOnFrom) {
  Recovery recovery({.attempts = 2, .own_node = "n1"});
  RunOutcome killed = Failed(0);
  killed.trained = false;
  EXPECT_TRUE(recovery.After(killed));
  RunOutcome silent = Failed(0, {"n1", "n3"});
  silent.trained = false;
  EXPECT_THAT(recovery.After(silent), Optional(Field(&Recovery::Loss::nodes, ElementsAre("n3"))));
  EXPECT_FALSE(recovery.After(killed));
}

TEST(Recovery, AStopOrAnEndIsNoFailure) {
  Recovery recovery({.attempts = 9, .own_node = ""});
  EXPECT_FALSE(recovery.After(RunOutcome{}));
  RunOutcome stopped = Failed(5, {"n2"});
  stopped.stop_asked = true;
  EXPECT_FALSE(recovery.After(stopped));
  EXPECT_EQ(recovery.Count(), 0);
}

TEST(Recovery, NoAttemptsMeansTheFirstFailureEndsTheRun) {
  Recovery recovery({.attempts = 0, .own_node = ""});
  EXPECT_FALSE(recovery.After(Failed(5)));
}

}  // namespace
}  // namespace adaptive_train::recovery_test
