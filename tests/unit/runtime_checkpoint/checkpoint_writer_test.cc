// Writing in the background: what ranks agree on, failures and full disks, what stays.
#include "runtime/checkpoint/checkpoint_writer.h"

#include <gmock/gmock.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include <atomic>
#include <chrono>
#include <cmath>
#include <thread>

#include "runtime/checkpoint/checkpoint_shard.h"
#include "tests/unit/runtime_checkpoint/in_child.h"
#include "tests/unit/runtime_checkpoint/saved_state.h"

namespace adaptive_train::checkpoint_writer_test {
namespace {

namespace fs = std::filesystem;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::StartsWith;

using WriterTest = CheckpointTest;

void WaitForAll(const SavingRanks& ranks) {
  for (const auto& writer : ranks.writers) ASSERT_TRUE(writer->Wait(std::chrono::minutes(1)));
}

TEST_F(WriterTest, RanksAgreeStepByStep) {
  SavingRanks ranks(path_, kSmallDims, {.ranks = 3});
  const SavedState state(WholeLayout(kSmallDims), 1);
  for (const CheckpointNews& news : ranks.Agree()) {
    EXPECT_TRUE(news.ready);
    EXPECT_FALSE(news.saved);
  }
  for (const std::size_t rank : {0, 2})
    ASSERT_TRUE(ranks.writers[rank]->Begin(StepOf(1), state.ConstSpans()));
  WaitForAll(ranks);
  for (const CheckpointNews& news : ranks.Agree()) EXPECT_FALSE(news.ready);
  EXPECT_FALSE(Newest().step) << "a shard is missing";
  ASSERT_TRUE(ranks.writers[1]->Begin(StepOf(1), state.ConstSpans()));
  EXPECT_FALSE(ranks.writers[1]->Begin(StepOf(2), state.ConstSpans())) << "one at a time";
  WaitForAll(ranks);
  EXPECT_EQ(Entries().size(), 1U);
  EXPECT_THAT(Entries()[0], StartsWith("step-00000001.part-")) << "nobody said that all is there";
  for (const CheckpointNews& news : ranks.Agree()) EXPECT_FALSE(news.ready || news.saved);
  WaitForAll(ranks);
  EXPECT_FALSE(ranks.writers[1]->Begin(StepOf(2), state.ConstSpans()))
      << "idle, but the others are not known to be";
  for (const CheckpointNews& news : ranks.Agree()) {
    EXPECT_TRUE(news.ready);
    EXPECT_EQ(news.saved, 1);
    EXPECT_EQ(news.failure, "");
  }
  for (const CheckpointNews& news : ranks.Agree()) EXPECT_FALSE(news.saved) << "told once";
  EXPECT_EQ(Check(1), "whole");
  EXPECT_EQ(ranks.writers[0]->PathOf(1), path_ + "/step-00000001");
}

// A rank that has failed removes the folder while it is empty.
TEST_F(WriterTest, AFolderThatAnotherRankTakesAwayIsMadeAgain) {
  const CheckpointFolder folder(path_);
  ShardIndex index;
  index.step = 1;
  index.arena = CheckpointArena{{{"wte.weight"}}, BucketRule::Whole(4, 1)};
  index.elements = 4;
  const std::vector<float> state(kResiduals * 4, 1.0F);
  const std::string part = folder.PartPathOf(1, 1);
  std::atomic<int> removed = 0;
  const std::jthread other([&](const std::stop_token& over) {
    while (!over.stop_requested()) {
      if (::rmdir(part.c_str()) == 0) {
        ++removed;
        std::this_thread::sleep_for(std::chrono::milliseconds(1));  // a rank fails only once
      }
      std::this_thread::yield();
    }
  });
  for (int times = 0; times < 20; ++times) {
    const auto written =
        WriteShard(folder, 1, 0, index, std::as_bytes(std::span(state)), [] { return false; });
    ASSERT_TRUE(written) << written.error().message;
    RemoveShard(folder, 1, 1, 0);
  }
  EXPECT_GT(removed, 0);
}

TEST_F(WriterTest, TheSnapshotIsTheRanksPart) {
  const SavingRanks ranks(path_, kSmallDims, {.ranks = 3});
  std::int64_t bytes = 0;
  for (const auto& writer : ranks.writers) bytes += writer->snapshot_bytes();
  EXPECT_EQ(bytes, WholeLayout(kSmallDims).size() * 12);
}

TEST_F(WriterTest, KeepsTheNewest) {
  SavingRanks ranks(path_, kSmallDims, {.keep = 2, .ranks = 2});
  for (const std::int64_t step : {1, 2, 10})
    ASSERT_EQ(ranks.Save(step, SavedState(WholeLayout(kSmallDims), step)), "saved");
  EXPECT_THAT(Entries(), ElementsAre("step-00000002", "step-00000010"));
  for (const std::int64_t step : {2, 10}) EXPECT_EQ(Check(step), "whole");
}

TEST_F(WriterTest, LeavesWhatARunWithOtherSamplesWrote) {
  ASSERT_EQ(Save(1, {.order = {{"train.seed", "5"}}}), "saved");
  for (const std::int64_t step : {2, 3, 4})
    ASSERT_EQ(Save(step, {.keep = 1, .order = {{"train.seed", "6"}}}), "saved");
  EXPECT_THAT(Entries(), ElementsAre("step-00000001", "step-00000004"));
}

TEST_F(WriterTest, CountsTheBlocksThatAreWritten) {
  SavingRanks ranks(path_, kLargeDims, {.ranks = 2});
  ASSERT_EQ(ranks.Save(1, SavedState(WholeLayout(kLargeDims), 1)), "saved");
  const double first = ranks.Agree()[0].blocks;
  EXPECT_GE(first * kCheckpointBlockBytes, WholeLayout(kLargeDims).size() * 12);
  ASSERT_EQ(ranks.Save(2, SavedState(WholeLayout(kLargeDims), 2)), "saved");
  EXPECT_EQ(ranks.Agree()[1].blocks, 2 * first);
}

TEST_F(WriterTest, OneRanksFailureEndsItForAllAndTheNextAttemptWorks) {
  SavingRanks ranks(path_, kSmallDims, {.keep = 1, .ranks = 3});
  const SavedState first(WholeLayout(kSmallDims), 1), second(WholeLayout(kSmallDims), 2);
  ASSERT_EQ(ranks.Save(1, first), "saved");
  // Something that cannot be removed is in the way of the third rank's file.
  const std::string part = CheckpointFolder(path_).PartPathOf(2, 1);
  const std::string obstacle = part + "/shard-00002.bin.tmp";
  fs::create_directories(obstacle);
  EXPECT_THAT(ranks.Save(2, second), StartsWith(obstacle + ": "));
  EXPECT_EQ(Newest().step, 1);
  EXPECT_THAT(fs::directory_iterator(part)->path(), obstacle) << "the others' shards are gone";
  fs::remove(obstacle);
  ASSERT_EQ(ranks.Save(2, second), "saved");
  EXPECT_EQ(Check(2), "whole");
  EXPECT_THAT(Entries(), ElementsAre("step-00000002"));
}

TEST_F(WriterTest, ALinkInTheWayIsNotFollowed) {
  fs::create_directory(path_ + "/elsewhere");
  fs::create_directory_symlink("elsewhere", CheckpointFolder(path_).PartPathOf(1, 1));
  EXPECT_THAT(Save(1, {}), HasSubstr("is there already and is not a folder"));
  EXPECT_TRUE(fs::is_empty(path_ + "/elsewhere"));
  const std::string part = CheckpointFolder(path_).PartPathOf(2, 1);
  fs::create_directory(part);
  fs::create_symlink(path_ + "/elsewhere/target", part + "/shard-00000.bin.tmp");
  EXPECT_EQ(Save(2, {}), "saved");
  EXPECT_TRUE(fs::is_empty(path_ + "/elsewhere"));
}

TEST_F(WriterTest, ShardsThatDoNotCoverTheModelAreNotCommitted) {
  const ParameterLayout layout = WholeLayout(kSmallDims);
  CheckpointArena arena{BlocksOf(layout), BucketRule::Whole(layout.size(), 1)};
  arena.blocks.back().copy = true;
  SavingRanks ranks;
  ranks.Add(path_, kSmallDims, {}, arena, {0, 0});
  EXPECT_THAT(ranks.Save(3, SavedState(layout, 3)),
              HasSubstr("ln_f.bias: 8 of 8 elements are in no shard"));
  EXPECT_THAT(Entries(), ElementsAre());
}

TEST_F(WriterTest, APlaceThatNobodyOrTwoRanksHaveIsNotCommitted) {
  const ParameterLayout layout = WholeLayout(kSmallDims);
  const auto saved_with = [&](std::int64_t places, std::int64_t last_arena) {
    SavingRanks ranks;
    const CheckpointArena arena{BlocksOf(layout), {{layout.size()}, 100, places}};
    for (int rank = 0; rank < 3; ++rank)
      ranks.Add(
          path_, kSmallDims, {.ranks = 3}, arena,
          rank == 2 ? SavingRanks::Share{last_arena, 2 - last_arena} : SavingRanks::Share{0, rank});
    return ranks.Save(3, SavedState(layout, 3));
  };
  EXPECT_THAT(saved_with(4, 0), HasSubstr("1 of 4 places of shard-00000's arena are in no shard"));
  EXPECT_THAT(saved_with(2, 2), HasSubstr("1 of 2 places of shard-00002's arena are in no shard"));
  EXPECT_THAT(saved_with(3, 1), HasSubstr("shard-00002: arena_of is 1, which has no arena"));
  EXPECT_THAT(Entries(), ElementsAre());
  EXPECT_EQ(saved_with(3, 0), "saved");
}

TEST_F(WriterTest, AnArenaThatIsNotOfTheModelIsRefusedAtOnce) {
  CheckpointWriterSettings settings;
  settings.owner = OwnerOf(kSmallDims);
  settings.arena = {{{"wte.weight", {}, {{0, 9}}}}, BucketRule::Whole(256 * 9, 1)};
  const auto writer = CheckpointWriter::Create(settings);
  ASSERT_FALSE(writer);
  EXPECT_EQ(writer.error().message,
            "checkpoints: \"wte.weight\" has columns [0, 8) left, not [0, 9)");
}

TEST_F(WriterTest, NumbersThatNoFileCanHold) {
  SavingRanks ranks(path_, kSmallDims, {});
  CheckpointStep at = StepOf(1);
  at.extra["loss_scale"] = std::nan("");
  const SavedState state(WholeLayout(kSmallDims), 1);
  ASSERT_TRUE(ranks.writers[0]->Begin(at, state.ConstSpans()));
  EXPECT_EQ(ranks.Finish(), "loss_scale is nan; a checkpoint keeps finite numbers");
}

TEST_F(WriterTest, LeftoversOfKilledWritersGoAndNothingElse) {
  for (const char* name :
       {"step-00000004.part-00000000000000aa", "step-00000002.gone", "step-00000009.aside-0",
        "step-00000009.partner", "step-00000003", "mine.part-1"}) {
    fs::create_directory(path_ + "/" + name);
    std::ofstream(path_ + "/" + name + "/shard-00000.bin") << "x";
  }
  ASSERT_EQ(Save(5, {.keep = 1}), "saved");
  EXPECT_THAT(Entries(), ElementsAre("mine.part-1", "step-00000003", "step-00000005",
                                     "step-00000009.aside-0", "step-00000009.partner"));
}

TEST_F(WriterTest, WhatCannotBeRemovedIsAWarning) {
  ASSERT_EQ(Save(1, {}), "saved");
  fs::create_directories(path_ + "/step-00000001/mine");
  SavingRanks ranks(path_, kSmallDims, {.keep = 1});
  EXPECT_EQ(ranks.Save(2, SavedState(WholeLayout(kSmallDims), 2)), "saved");
  EXPECT_THAT(ranks.warnings, ElementsAre(StartsWith(path_ + "/step-00000001.gone/mine: ")));
  EXPECT_EQ(Newest().step, 2);
}

TEST_F(WriterTest, StoppingInTheMiddleLeavesNoHalf) {
  const ParameterLayout layout = WholeLayout(kLargeDims);
  const SavedState state(layout, 1);
  for (int round = 0; round < 20; ++round) {
    SavingRanks ranks(path_, kLargeDims, {});
    ASSERT_TRUE(ranks.writers[0]->Begin(StepOf(1), state.ConstSpans()));
    ::usleep(static_cast<useconds_t>(round * 200));
  }
  EXPECT_FALSE(Newest(kLargeDims).step);
  ASSERT_EQ(Save(1, {.attempt = 2}, kLargeDims), "saved");
  EXPECT_THAT(Entries(), ElementsAre("step-00000001"));
}

/// A mount namespace of our own, by way of a user namespace where we are not root.
bool OwnMounts() {
  if (::unshare(::geteuid() == 0 ? CLONE_NEWNS : CLONE_NEWNS | CLONE_NEWUSER) != 0) return false;
  return ::mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) == 0;
}

TEST_F(WriterTest, AFullDiskKeepsTheOneBeforeAndTheNextAttemptWorks) {
  const std::string outcome = InChild([&]() -> std::string {
    const bool mounted = OwnMounts() && ::mount("none", path_.c_str(), "tmpfs", 0, "size=6m") == 0;
    if (!mounted) return "cannot mount a small disk";
    const ParameterLayout layout = WholeLayout(kLargeDims);
    SavingRanks ranks(path_, kLargeDims, {.keep = 1, .ranks = 2});
    if (const auto saved = ranks.Save(1, SavedState(layout, 1)); saved != "saved") return saved;
    for (int attempt = 0; attempt < 3; ++attempt) {
      const std::string refused = ranks.Save(2 + attempt, SavedState(layout, 2));
      if (refused.find(": No space left on device") == std::string::npos)
        return "full, but: " + refused;
      if (Check(1, kLargeDims) != "whole") return "the one before: " + Check(1, kLargeDims);
      if (Entries().size() != 1) return "halves stay on the full disk";
    }
    if (::mount("none", path_.c_str(), "tmpfs", MS_REMOUNT, "size=40m") != 0) return "no remount";
    if (const auto saved = ranks.Save(5, SavedState(layout, 5)); saved != "saved") return saved;
    return Entries().size() == 1 ? Check(5, kLargeDims) : "not pruned";
  });
  EXPECT_EQ(outcome, "whole");
}

TEST_F(WriterTest, ALimitOnTheSizeOfFilesIsOneLine) {
  const std::string outcome = InChild([&]() -> std::string {
    ::signal(SIGXFSZ, SIG_IGN);
    const rlimit limit{5000, 5000};
    ::setrlimit(RLIMIT_FSIZE, &limit);
    return Save(1, {});
  });
  EXPECT_THAT(outcome, HasSubstr("shard-00000.bin: File too large"));
}

TEST_F(WriterTest, AFolderThatMayNotBeWritten) {
  std::ofstream(path_ + "/file") << "x";
  path_ += "/file";
  EXPECT_THAT(Save(1, {}), StartsWith(path_ + ": "));
  path_.erase(path_.size() - 5);
}

TEST_F(WriterTest, MoreMemoryThanThereIs) {
  CheckpointWriterSettings settings;
  constexpr std::int64_t kElements = std::int64_t{1} << 46;
  settings.owner.parameters = {{"w", {kElements}, kElements}};
  settings.arena = {{{"w"}}, BucketRule::Whole(kElements, 1)};
  auto writer = CheckpointWriter::Create(settings);
  ASSERT_FALSE(writer);
  EXPECT_THAT(writer.error().message, StartsWith("a checkpoint's snapshot needs"));
}

}  // namespace
}  // namespace adaptive_train::checkpoint_writer_test
