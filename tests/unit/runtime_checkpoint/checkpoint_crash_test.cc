// A writer that ends at any moment, or whose system calls fail, leaves a whole checkpoint and those
// before it as they were.
#include <gmock/gmock.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>

#include "tests/unit/runtime_checkpoint/failing_system_calls.h"
#include "tests/unit/runtime_checkpoint/in_child.h"
#include "tests/unit/runtime_checkpoint/saved_state.h"

namespace adaptive_train::checkpoint_crash_test {
namespace {

using system_calls::Fate;
using testing::ElementsAre;

class CrashTest : public CheckpointTest {
 protected:
  /// Steps 2 and 3 are there, step 4 is saved with keep = 2 and the fate, so step 2 goes.
  std::string SaveWith(Fate fate, int n) const {
    const SavedState state(WholeLayout(kSmallDims), 4);
    return InChild([&]() -> std::string {
      SavingRanks ranks(path_, kSmallDims, {.keep = 2, .attempt = 99});
      system_calls::Arrange(fate, n);
      const std::string outcome = ranks.Save(4, state);
      const int calls = system_calls::Count();
      system_calls::Arrange(Fate::kHappen, 0);
      return calls < n ? "all calls made" : outcome;
    });
  }
  /// Makes the two steps once, and puts them back as they were from then on.
  void StartWithTwo() {
    if (!std::filesystem::exists(kept_)) {
      for (const std::int64_t step : {2, 3}) ASSERT_EQ(Save(step, {.keep = 2}), "saved");
      std::filesystem::rename(path_, kept_);
    }
    std::filesystem::remove_all(path_);
    std::filesystem::copy(kept_, path_, std::filesystem::copy_options::recursive);
  }
  void TearDown() override { std::filesystem::remove_all(kept_); }
  /// Whatever happened to step 4: nothing that looks complete is not, and 3 is as it was.
  void ExpectWholeOnes() const {
    const NewestCheckpoint newest = Newest();
    ASSERT_TRUE(newest.step);
    EXPECT_GE(*newest.step, 3);
    EXPECT_THAT(newest.refused, ElementsAre());
    for (const std::int64_t step : CompleteSteps()) EXPECT_EQ(Check(step), "whole");
    EXPECT_EQ(Check(3), "whole");
    if (*newest.step == 3) {
      EXPECT_EQ(Check(2), "whole") << "pruned before there was a newer one";
    }
  }
  void ExpectTheNextAttemptWorks() const {
    ASSERT_EQ(Save(5, {.keep = 2, .attempt = 100}), "saved");
    EXPECT_EQ(Check(5), "whole");
    EXPECT_EQ(Entries().size(), 2U) << "leftovers are gone";
  }

  const std::string kept_ = path_ + ".kept";
};

class KilledAtEachCall : public CrashTest, public testing::WithParamInterface<Fate> {};

TEST_P(KilledAtEachCall, LeavesWholeCheckpoints) {
  int n = 1;
  for (;; ++n) {
    StartWithTwo();
    const std::string outcome = SaveWith(GetParam(), n);
    if (outcome == "all calls made") break;
    ASSERT_EQ(outcome, "signal 9") << "call " << n;
    ExpectWholeOnes();
    ExpectTheNextAttemptWorks();
    ASSERT_FALSE(HasFailure()) << "call " << n;
  }
  EXPECT_GT(n, 20) << "calls are wrapped";
}

INSTANTIATE_TEST_SUITE_P(Fates, KilledAtEachCall,
                         testing::Values(Fate::kKillBefore, Fate::kKillAmid));

class FailingAtEachCall : public CrashTest, public testing::WithParamInterface<Fate> {};

TEST_P(FailingAtEachCall, IsToldAndLeavesWholeCheckpoints) {
  int told = 0;
  for (int n = 1;; ++n) {
    StartWithTwo();
    const std::string outcome = SaveWith(GetParam(), n);
    if (outcome == "all calls made") break;
    if (outcome != "saved") {
      ++told;
      EXPECT_THAT(outcome, testing::HasSubstr(path_));
      EXPECT_EQ(outcome.find('\n'), std::string::npos);
    }
    ExpectWholeOnes();
    ExpectTheNextAttemptWorks();
    ASSERT_FALSE(HasFailure()) << "call " << n << ": " << outcome;
  }
  EXPECT_GT(told, 10);
}

INSTANTIATE_TEST_SUITE_P(Fates, FailingAtEachCall, testing::Values(Fate::kNoSpace, Fate::kIoError));

/// Saves one step after the other and writes a byte for each; ends if one fails.
[[noreturn]] void SaveAndTell(SavingRanks& ranks, std::int64_t first, int fd) {
  for (std::int64_t step = first;; ++step) {
    const std::string outcome = ranks.Save(step, SavedState(WholeLayout(kLargeDims), step));
    if (outcome == "saved" && ::write(fd, "s", 1) == 1) continue;
    std::fprintf(stderr, "step %lld: %s\n", static_cast<long long>(step), outcome.c_str());
    ::_exit(1);
  }
}

/// Real kills at arbitrary moments, several ranks, several blocks.
TEST_F(CrashTest, KilledAtAnyMoment) {
  ASSERT_EQ(Save(1, {}, kLargeDims), "saved");
  std::int64_t last = 1;
  for (int round = 0; round < 24; ++round) {
    int ends[2];
    ASSERT_EQ(::pipe(ends), 0);
    const pid_t pid = ::fork();
    if (pid == 0) {
      const auto attempt = static_cast<std::uint64_t>(100 + round);
      SavingRanks ranks(path_, kLargeDims, {.keep = 2, .ranks = 1 + round % 3, .attempt = attempt});
      SaveAndTell(ranks, last + 1, ends[1]);
    }
    ::close(ends[1]);
    const auto start = std::chrono::steady_clock::now();
    char told[2];
    ASSERT_EQ(::read(ends[0], told, 1), 1);
    // Somewhere in the next save, which takes about as long.
    std::this_thread::sleep_for((std::chrono::steady_clock::now() - start) * (round % 12) / 10);
    ::kill(pid, SIGKILL);
    int status = 0;
    ::waitpid(pid, &status, 0);
    ::close(ends[0]);
    ASSERT_TRUE(WIFSIGNALED(status)) << "the writer ended by itself: " << status;
    const NewestCheckpoint newest = Newest(kLargeDims);
    ASSERT_TRUE(newest.step);
    ASSERT_GT(*newest.step, last) << "what was told to be saved is there";
    EXPECT_THAT(newest.refused, ElementsAre());
    for (const std::int64_t step : CompleteSteps())
      ASSERT_EQ(Check(step, kLargeDims), "whole") << "step " << step;
    last = *newest.step;
  }
}

}  // namespace
}  // namespace adaptive_train::checkpoint_crash_test
