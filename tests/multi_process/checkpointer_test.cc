// Ranks that save and take up residuals together, with and without compression.
#include "runtime/train/checkpointer.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <filesystem>
#include <stdexcept>
#include <string>
#include <vector>

#include "tests/multi_process/forked_ranks.h"

namespace adaptive_train {
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

/// One rank's arenas and its Checkpointer; the blocks of 100 elements are dealt out in turn.
struct SavingRank {
  SavingRank(const Config& config, Communicator& c, bool compress)
      : layout(DimsOf(config.model), StageSlice::Whole(DimsOf(config.model))),
        checkpointer(config, layout, Owned(c), c, events, 1) {
    events.on_saved = [](const Saved&) {};
    events.on_notice = [this](const std::string& line) { notice += line; };
    for (std::size_t arena = 0; arena < (compress ? kTrainingArenas : kResiduals); ++arena)
      arenas[arena].assign(static_cast<std::size_t>(layout.size()), 7.0F);
  }
  ElementRanges Owned(Communicator& c) const {
    ElementRanges owned;
    for (std::int64_t begin = 100 * c.Rank(); begin < layout.size(); begin += 100 * c.Size())
      owned.push_back({begin, std::min(begin + 100, layout.size())});
    return owned;
  }
  std::optional<CheckpointStep> Resume() {
    return checkpointer.Resume(Spans(), {{0, layout.size()}});
  }
  TrainingArenas Spans() { return {arenas[0], arenas[1], arenas[2], arenas[3]}; }
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
  bool StateIsWhole() const {
    for (std::size_t arena = 0; arena < kResiduals; ++arena)
      for (std::size_t i = 0; i < arenas[arena].size(); ++i)
        if (arenas[arena][i] != ValueAt(arena, 0, i)) return false;
    return true;
  }
  /// Whether the residuals are the sum of those of these ranks.
  bool ResidualsAreOf(const std::vector<int>& ranks) const {
    for (std::size_t i = 0; i < arenas[kResiduals].size(); ++i) {
      float sum = 0;
      for (const int rank : ranks) sum += ValueAt(kResiduals, rank, i);
      if (arenas[kResiduals][i] != sum) return false;
    }
    return true;
  }

  std::string notice;
  TrainerEvents events;
  const ParameterLayout layout;
  std::array<std::vector<float>, kTrainingArenas> arenas;
  Checkpointer checkpointer;
};

bool SaveStepFive(const Config& config, Communicator& c, bool compress) {
  SavingRank rank(config, c, compress);
  if (rank.Resume()) return false;
  rank.Fill(c.Rank());
  rank.checkpointer.SaveNow({5, 5, CheckpointIdentity(config), {}}, rank.Spans());
  return rank.notice == kNoNotice;
}

TEST_F(CheckpointerTest, EachRankTakesUpItsResidualsAndThoseOfRanksThatAreGone) {
  Ranks four(4, [&](Communicator& c) { return SaveStepFive(config_, c, true); });
  ASSERT_TRUE(four.AllGood());
  for (const int size : {4, 3, 1, 5}) {
    Ranks ranks(size, [&](Communicator& c) {
      SavingRank rank(config_, c, true);
      const auto at = rank.Resume();
      std::vector<int> taken;
      for (int shard = c.Rank(); shard < 4; shard += size) taken.push_back(shard);
      return at && at->step == 5 && rank.StateIsWhole() && rank.ResidualsAreOf(taken) &&
             rank.notice == kNoNotice;
    });
    EXPECT_TRUE(ranks.AllGood()) << size;
  }
}

TEST_F(CheckpointerTest, ARunThatDoesNotCompressSaysOnceThatItDropsThem) {
  Ranks two(2, [&](Communicator& c) { return SaveStepFive(config_, c, true); });
  ASSERT_TRUE(two.AllGood());
  Ranks ranks(2, [&](Communicator& c) {
    SavingRank rank(config_, c, false);
    const auto at = rank.Resume();
    const std::string expected = config_.checkpoint.dir + "/step-00000005 holds " +
                                 std::to_string(2 * rank.layout.size()) +
                                 " elements of compressed gradients' residuals: dropped, this run "
                                 "does not compress";
    return at && rank.StateIsWhole() && rank.arenas[kResiduals].empty() &&
           rank.notice == (c.Rank() == 0 ? expected : kNoNotice);
  });
  EXPECT_TRUE(ranks.AllGood());
}

TEST_F(CheckpointerTest, ARunThatBeginsToCompressBeginsWithZeros) {
  Ranks two(2, [&](Communicator& c) { return SaveStepFive(config_, c, false); });
  ASSERT_TRUE(two.AllGood());
  Ranks ranks(2, [&](Communicator& c) {
    SavingRank rank(config_, c, true);
    const auto at = rank.Resume();
    return at && rank.StateIsWhole() && rank.ResidualsAreOf({}) && rank.notice == kNoNotice;
  });
  EXPECT_TRUE(ranks.AllGood());
}

}  // namespace
}  // namespace adaptive_train
