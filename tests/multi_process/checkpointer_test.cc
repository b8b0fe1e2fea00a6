// Ranks that save and take up residuals together, with and without compression.
#include "runtime/train/checkpointer.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <numeric>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "kernels/host_memory.h"
#include "runtime/exchange/gradient_buckets.h"
#include "runtime/fatal_error.h"
#include "tests/multi_process/forked_ranks.h"

namespace adaptive_train::checkpointer_test {
namespace {

const char* const kNoNotice = "";

class CheckpointerTest : public testing::Test {
 protected:
  CheckpointerTest() {
    std::string pattern = (std::filesystem::temp_directory_path() / "checkpointer.XXXXXX").string();
    if (::mkdtemp(pattern.data()) == nullptr) throw std::runtime_error("cannot make a folder");
    config_.model.layers = 1;
    config_.model.hidden = 16;
    config_.model.sequence = 8;
    config_.checkpoint.dir = pattern;
  }
  ~CheckpointerTest() override { std::filesystem::remove_all(config_.checkpoint.dir); }

  Config config_;
};

/// One rank's arenas and its Checkpointer; a hundred buckets or fewer are shared out, the last rank
/// first.
struct SavingRank {
  SavingRank(const Config& config, Group& c, bool compress, const std::string& data = "a text")
      : layout(DimsOf(config.model), StageSlice::Whole(DimsOf(config.model))),
        buckets(layout, OwnersOf(c),
                static_cast<std::size_t>(std::max<std::int64_t>(100, layout.size() / 100 + 1))),
        share{buckets.rule(), buckets.PlaceOf(c.Rank())},
        checkpointer(config, layout, share, c, c, events, 1, data) {
    events.on_saving = [this](const Saving& saving) { blocks = saving.blocks; };
    events.on_saved = [](const Saved&) {};
    events.on_notice = [this](const std::string& line) { notice += line; };
    for (std::size_t arena = 0; arena < (compress ? kTrainingArenas : kResiduals); ++arena)
      arenas[arena].assign(static_cast<std::size_t>(layout.size()), 7.0F);
  }
  static std::vector<int> OwnersOf(Group& c) {
    std::vector<int> owners(static_cast<std::size_t>(c.Size()));
    std::iota(owners.rbegin(), owners.rend(), 0);
    return owners;
  }
  std::optional<CheckpointStep> Resume() {
    return checkpointer.Resume(Spans(), {{0, layout.size()}});
  }
  TrainingArenas Spans() { return {&memory, {arenas[0], arenas[1], arenas[2], arenas[3]}}; }
  /// All ranks' state is the same, their residuals are not.
  void Fill(int rank) {
    for (std::size_t arena = 0; arena < kTrainingArenas; ++arena)
      for (std::size_t i = 0; i < arenas[arena].size(); ++i)
        arenas[arena][i] = ValueAt(arena, arena == kResiduals ? rank : 0, i);
  }
  static float ValueAt(std::size_t arena, int rank, std::size_t i) {
    return static_cast<float>(i % 4096) * 0.5F + static_cast<float>(1000 * arena) +
           static_cast<float>(100'000 * rank);
  }
  bool StateIsWhole() const { return StateIsThereIn({{0, layout.size()}}); }
  /// Whether the state is in these ranges, and outside of them what was there before.
  bool StateIsThereIn(const ElementRanges& ranges) const {
    for (std::size_t arena = 0; arena < kResiduals; ++arena) {
      std::vector<float> expected(arenas[arena].size(), 7.0F);
      for (const ElementRange& range : ranges)
        for (auto i = static_cast<std::size_t>(range.begin);
             i < static_cast<std::size_t>(range.end); ++i)
          expected[i] = ValueAt(arena, 0, i);
      for (std::size_t i = 0; i < expected.size(); ++i)
        RANK_REQUIRE(arenas[arena][i] == expected[i], arenas[arena][i], expected[i]);
    }
    return true;
  }
  /// Whether the residuals are the sum of those of these ranks.
  bool ResidualsAreOf(const std::vector<int>& ranks) const {
    for (std::size_t i = 0; i < arenas[kResiduals].size(); ++i) {
      float sum = 0;
      for (const int rank : ranks) sum += ValueAt(kResiduals, rank, i);
      RANK_REQUIRE(arenas[kResiduals][i] == sum, arenas[kResiduals][i], sum);
    }
    return true;
  }

  std::string notice;
  std::int64_t blocks = 0;  // written, as rank 0 has heard last
  TrainerEvents events;
  const ParameterLayout layout;
  kernels::HostMemory memory;
  std::array<std::vector<float>, kTrainingArenas> arenas;
  const GradientBuckets buckets;
  const ArenaShare share;
  Checkpointer checkpointer;
};

bool SaveStepFive(const Config& config, Group& c, bool compress) {
  SavingRank rank(config, c, compress);
  RANK_REQUIRE(!rank.Resume());
  rank.Fill(c.Rank());
  rank.checkpointer.SaveNow({5, 5, CheckpointIdentity(config), {}, {}}, rank.Spans());
  RANK_REQUIRE(rank.notice == kNoNotice, rank.notice);
  return true;
}

TEST_F(CheckpointerTest, EachRankTakesUpItsResidualsAndThoseOfRanksThatAreGone) {
  Ranks four(4, [&](Group& c) { return SaveStepFive(config_, c, true); });
  ASSERT_TRUE(four.AllGood());
  for (const int size : {4, 3, 1, 5}) {
    Ranks ranks(size, [&](Group& c) {
      SavingRank rank(config_, c, true);
      const auto at = rank.Resume();
      std::vector<int> taken;
      for (int shard = c.Rank(); shard < 4; shard += size) taken.push_back(shard);
      RANK_REQUIRE(at);
      RANK_REQUIRE(at->step == 5, at->step);
      RANK_REQUIRE(rank.StateIsWhole());
      RANK_REQUIRE(rank.ResidualsAreOf(taken));
      RANK_REQUIRE(rank.notice == kNoNotice, rank.notice);
      return true;
    });
    EXPECT_TRUE(ranks.AllGood()) << size;
  }
}

TEST_F(CheckpointerTest, ARunThatDoesNotCompressSaysOnceThatItDropsThem) {
  Ranks two(2, [&](Group& c) { return SaveStepFive(config_, c, true); });
  ASSERT_TRUE(two.AllGood());
  Ranks ranks(2, [&](Group& c) {
    SavingRank rank(config_, c, false);
    const auto at = rank.Resume();
    const std::string expected = config_.checkpoint.dir + "/step-00000005 holds " +
                                 std::to_string(2 * rank.layout.size()) +
                                 " elements of compressed gradients' residuals: dropped, this run "
                                 "does not compress";
    RANK_REQUIRE(at);
    RANK_REQUIRE(rank.StateIsWhole());
    RANK_REQUIRE(rank.arenas[kResiduals].empty());
    RANK_REQUIRE(rank.notice == (c.Rank() == 0 ? expected : kNoNotice), rank.notice,
                 (c.Rank() == 0 ? expected : kNoNotice));
    return true;
  });
  EXPECT_TRUE(ranks.AllGood());
}

/// A run of one replica holds nothing back: its next update takes what others held back.
TEST_F(CheckpointerTest, ASingleReplicaTakesAllResiduals) {
  Ranks two(2, [&](Group& c) { return SaveStepFive(config_, c, true); });
  ASSERT_TRUE(two.AllGood());
  Ranks ranks(1, [&](Group& c) {
    SavingRank rank(config_, c, false);
    RANK_REQUIRE(rank.checkpointer.Resume(rank.Spans(), {{0, rank.layout.size()}}, [&] {
      rank.arenas[kResiduals].resize(static_cast<std::size_t>(rank.layout.size()));
      return std::span<float>(rank.arenas[kResiduals]);
    }));
    RANK_REQUIRE(rank.StateIsWhole());
    RANK_REQUIRE(rank.ResidualsAreOf({0, 1}));
    RANK_REQUIRE(rank.notice.ends_with("residuals: all go into the next update, since a single "
                                       "replica holds nothing back"),
                 rank.notice);
    return true;
  });
  EXPECT_TRUE(ranks.AllGood());
}

TEST_F(CheckpointerTest, ARunThatBeginsToCompressBeginsWithZeros) {
  Ranks two(2, [&](Group& c) { return SaveStepFive(config_, c, false); });
  ASSERT_TRUE(two.AllGood());
  Ranks ranks(2, [&](Group& c) {
    SavingRank rank(config_, c, true);
    const auto at = rank.Resume();
    return at && rank.StateIsWhole() && rank.ResidualsAreOf({}) && rank.notice == kNoNotice;
  });
  EXPECT_TRUE(ranks.AllGood());
}

TEST_F(CheckpointerTest, WhatShardedRanksSavedAnyNumberReadsShardedOrNot) {
  const std::string folder = config_.checkpoint.dir;
  for (const int writers : {1, 3, 4}) {
    config_.checkpoint.dir = folder + "/" + std::to_string(writers);
    Ranks saving(writers, [&](Group& c) { return SaveStepFive(config_, c, false); });
    ASSERT_TRUE(saving.AllGood()) << writers;
    for (const int readers : {1, 2, 3, 5}) {
      for (const bool sharded : {true, false}) {
        Ranks ranks(readers, [&](Group& c) {
          SavingRank rank(config_, c, false);
          const ElementRanges held = sharded ? rank.share.rule.OwnedBy(rank.share.place)
                                             : ElementRanges{{0, rank.layout.size()}};
          RANK_REQUIRE(rank.checkpointer.Resume(rank.Spans(), held));
          return rank.StateIsThereIn(held);
        });
        EXPECT_TRUE(ranks.AllGood()) << writers << " to " << readers << ", sharded " << sharded;
      }
    }
  }
  config_.checkpoint.dir = folder;
}

/// What becomes of a run that goes on with these settings: its notice, or why it is refused.
std::string ResumedWith(const Config& config, Group& c, const std::string& data) {
  SavingRank rank(config, c, false, data);
  try {
    const auto at = rank.Resume();
    return at && at->extra.at("samples") == 5 * 16 ? rank.notice : "another state";
  } catch (const FatalError& error) {
    return error.Cause();
  }
}

TEST_F(CheckpointerTest, SettingsThatChangedAreToldAndRefusedWhereTheOrderOfSamplesDoes) {
  Ranks writer(1, [&](Group& c) { return SaveStepFive(config_, c, false); });
  ASSERT_TRUE(writer.AllGood());
  Ranks reader(1, [&](Group& c) {
    Config changed = config_;
    changed.optimizer.lr = 0.5;
    std::string told = ResumedWith(config_, c, "a text");
    RANK_REQUIRE(told == kNoNotice, told);
    told = ResumedWith(changed, c, "a text");
    RANK_REQUIRE(told == "changed since the checkpoint: optimizer.lr = 0.5, was 0.001", told);
    told = ResumedWith(config_, c, "a text and more");
    RANK_REQUIRE(told.find("data.train = a text and more, was a text: samples would come in "
                           "another order; to go on all the same, set checkpoint.accept = "
                           "[\"data.train\"]") != std::string::npos,
                 told);
    changed = config_;
    changed.train.seed = 5;
    changed.train.global_batch = 7;
    changed.checkpoint.accept = {"train.seed"};
    told = ResumedWith(changed, c, "a text");
    RANK_REQUIRE(told.find("set checkpoint.accept = [\"train.global_batch\"]") != std::string::npos,
                 told);
    changed.checkpoint.accept = {"train.seed", "train.global_batch"};
    told = ResumedWith(changed, c, "a text");
    RANK_REQUIRE(told ==
                     "changed since the checkpoint: train.global_batch = 7, was 16"
                     "changed since the checkpoint: train.seed = 5, was 1337",
                 told);
    return true;
  });
  EXPECT_TRUE(reader.AllGood());
}

/// Bytes that this process has read from files and sockets.
std::int64_t BytesRead() {
  std::ifstream io("/proc/self/io");
  std::string name;
  std::int64_t bytes = -1;
  io >> name >> bytes;
  return name == "rchar:" ? bytes : -1;
}

TEST_F(CheckpointerTest, EachRankReadsItsPartOfTheCheckpointOnly) {
  constexpr int kRanks = 4;
  // Large against the blocks of 1 MiB, as parts end inside of them.
  config_.model.hidden = 512;
  config_.model.layers = 2;
  const auto own = [](const ParameterLayout& layout, Group& c) -> ElementRanges {
    return {PartOf(layout.size(), c.Rank(), c.Size())};
  };
  Ranks writers(kRanks, [&](Group& c) { return SaveStepFive(config_, c, false); });
  ASSERT_TRUE(writers.AllGood());
  Ranks readers(kRanks, [&](Group& c) {
    SavingRank rank(config_, c, false);
    const std::int64_t before = BytesRead();
    const auto at = rank.checkpointer.Resume(rank.Spans(), own(rank.layout, c));
    const std::int64_t read = BytesRead() - before;
    const std::int64_t whole = rank.layout.size() * 12;
    RANK_REQUIRE(at);
    RANK_REQUIRE(before >= 0, before);
    RANK_REQUIRE(read < whole, read, whole);
    return true;
  });
  EXPECT_TRUE(readers.AllGood());
}

TEST_F(CheckpointerTest, AnotherRanksPartThatIsDamagedIsRefusedByAllAndNamedByRankZero) {
  Ranks four(4, [&](Group& c) { return SaveStepFive(config_, c, false); });
  ASSERT_TRUE(four.AllGood());
  const std::string shard = config_.checkpoint.dir + "/step-00000005/shard-00003.bin";
  std::fstream(shard, std::ios::in | std::ios::out).write("damage", 6);
  Ranks ranks(4, [&](Group& c) {
    SavingRank rank(config_, c, false);
    try {
      rank.Resume();
    } catch (const FatalError& error) {
      if (c.Rank() > 0) return true;
      RANK_REQUIRE(rank.notice.starts_with("refused: " + shard), rank.notice);
      RANK_REQUIRE(error.Cause().starts_with(shard), error.Cause());
      return true;
    }
    RANK_REQUIRE(!"resumed from what is damaged");
    return true;
  });
  // The others wait for a launcher that would end them.
  EXPECT_TRUE(ranks.Good(0));
}

}  // namespace
}  // namespace adaptive_train::checkpointer_test
