// What an exit, a signal and an errno are called, and whom each kind is held against.
#include "core/failure_kind.h"

#include <gtest/gtest.h>
#include <signal.h>

#include <cerrno>
#include <string>

namespace adaptive_train::failure_kind_test {
namespace {

TEST(FailureKind, HasANameThatReadsBack) {
  for (const std::string_view name : NamesOf<FailureKind>()) {
    ASSERT_TRUE(ChoiceOf<FailureKind>(name)) << name;
    EXPECT_EQ(NameOf(*ChoiceOf<FailureKind>(name)), name);
  }
  EXPECT_EQ(NameOf(FailureKind::kInjected), "injected");
  EXPECT_EQ(ChoiceOf<Blamed>(""), Blamed::kNobody);
}

TEST(FailureKind, FollowsTheErrnoThenTheExitCode) {
  EXPECT_EQ(KindOf(RankExit::kCheckpoint, ENOSPC), FailureKind::kDiskFull);
  EXPECT_EQ(KindOf(RankExit::kCheckpoint, EDQUOT), FailureKind::kQuota);
  EXPECT_EQ(KindOf(RankExit::kCheckpoint, EIO), FailureKind::kStorage);
  EXPECT_EQ(KindOf(RankExit::kSetup, ENOENT), FailureKind::kConfiguration);
  EXPECT_EQ(KindOf(RankExit::kSetup, EIO), FailureKind::kStorage);
  EXPECT_EQ(KindOf(RankExit::kDevice, ENOMEM), FailureKind::kOutOfMemory);
  EXPECT_EQ(KindOf(RankExit::kDevice), FailureKind::kDeviceError);
  EXPECT_EQ(KindOf(RankExit::kDiverged), FailureKind::kDiverged);
  EXPECT_EQ(KindOf(RankExit::kTransport), FailureKind::kLinkLost);
  EXPECT_EQ(KindOf(RankExit::kWireup), FailureKind::kLaunch);
}

TEST(FailureKind, TellsAKilledProcessFromOneThatCrashed) {
  for (int signal : {SIGKILL, SIGTERM, SIGINT, SIGXCPU})
    EXPECT_EQ(KindOfSignal(signal), FailureKind::kKilled) << signal;
  for (int signal : {SIGSEGV, SIGABRT, SIGBUS, SIGFPE, SIGILL})
    EXPECT_EQ(KindOfSignal(signal), FailureKind::kCrashed) << signal;
  EXPECT_EQ(KindOfExit(1), FailureKind::kCrashed);
  EXPECT_EQ(KindOfExit(127), FailureKind::kCrashed);
  EXPECT_EQ(KindOfExit(ToInt(RankExit::kDiverged)), FailureKind::kDiverged);
  EXPECT_EQ(KindOfExit(ToInt(RankExit::kMemory)), FailureKind::kOutOfMemory);
  EXPECT_EQ(KindOfExit(ToInt(RankExit::kAborted)), FailureKind::kUnknown);
}

TEST(FailureKind, CountsAgainstWhatItSaysSomethingAboutOnly) {
  EXPECT_EQ(BlamedFor(FailureKind::kNodeSilent, false), Blamed::kNode);
  EXPECT_EQ(BlamedFor(FailureKind::kDeviceError, false), Blamed::kNode);
  EXPECT_EQ(BlamedFor(FailureKind::kSlow, false), Blamed::kNode);
  EXPECT_EQ(BlamedFor(FailureKind::kOutOfMemory, true), Blamed::kNode);
  EXPECT_EQ(BlamedFor(FailureKind::kOutOfMemory, false), Blamed::kNobody);
  EXPECT_EQ(BlamedFor(FailureKind::kLinkLost, true), Blamed::kLink);
  for (const auto kind : {FailureKind::kUnknown, FailureKind::kRankSilent, FailureKind::kKilled,
                          FailureKind::kCrashed, FailureKind::kDiverged, FailureKind::kDiskFull,
                          FailureKind::kQuota, FailureKind::kStorage, FailureKind::kConfiguration,
                          FailureKind::kLaunch, FailureKind::kInjected})
    EXPECT_EQ(BlamedFor(kind, true), Blamed::kNobody) << NameOf(kind);
}

}  // namespace
}  // namespace adaptive_train::failure_kind_test
