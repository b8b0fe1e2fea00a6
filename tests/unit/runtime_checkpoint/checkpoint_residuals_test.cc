// Residuals: each rank's own come back bit for bit, their sum is kept at any number of ranks.
#include <gmock/gmock.h>

#include <cmath>
#include <cstring>
#include <random>

#include "core/file_io.h"
#include "tests/unit/runtime_checkpoint/saved_state.h"

namespace adaptive_train::checkpoint_residuals_test {
namespace {

using testing::HasSubstr;
using Residuals = std::vector<std::vector<float>>;  // [ranks]

class ResidualsTest : public CheckpointTest {
 protected:
  /// Different for each rank, with a -0 here and there.
  Residuals Draw(std::size_t ranks) const {
    std::mt19937 random(4711);
    std::normal_distribution<float> normal(0, 1e-3F);
    Residuals residuals(ranks, std::vector<float>(Elements()));
    for (auto& of_rank : residuals) {
      for (float& value : of_rank) value = random() % 4 == 0 ? -0.0F : normal(random);
    }
    return residuals;
  }
  std::size_t Elements() const { return static_cast<std::size_t>(layout_.size()); }

  SavingRanks WritersOf(std::size_t ranks) const {
    const auto size = static_cast<std::int64_t>(ranks);
    SavingRanks writers;
    const CheckpointArena arena{BlocksOf(layout_), BucketRule::Whole(layout_.size(), size)};
    for (std::int64_t rank = 0; rank < size; ++rank)
      writers.Add(path_, kLargeDims, {.ranks = size}, arena, {0, rank}, true);
    return writers;
  }
  std::string SaveWith(SavingRanks& writers, std::int64_t step, const Residuals& residuals) const {
    SavedState state(layout_, step);
    for (std::size_t rank = 0; rank < residuals.size(); ++rank) {
      state.arenas[kResiduals] = residuals[rank];
      if (!writers.writers[rank]->Begin(StepOf(step), state.ConstSpans())) return "Begin refused";
    }
    return writers.Finish();
  }
  std::string Save(std::int64_t step, const Residuals& residuals) const {
    SavingRanks writers = WritersOf(residuals.size());
    return SaveWith(writers, step, residuals);
  }
  /// What each of so many ranks reads; state too, which all must get whole.
  Residuals ReadBy(std::int64_t ranks, std::int64_t step) const {
    auto reader = CheckpointFolder(path_).Open(step, OwnerOf(kLargeDims));
    if (!reader) throw std::runtime_error(reader.error().message);
    Residuals residuals;
    for (std::int64_t rank = 0; rank < ranks; ++rank) {
      SavedState state(layout_);
      state.arenas[kResiduals].assign(Elements(), 7.0F);
      auto read = reader->Read(ReadingRank::OfAll(layout_, rank, ranks), state.Spans());
      if (!read) throw std::runtime_error(read.error().message);
      residuals.push_back(std::move(state.arenas[kResiduals]));
      state.arenas[kResiduals].clear();
      EXPECT_EQ(state.arenas, SavedState(layout_, step).arenas);
    }
    return residuals;
  }
  std::int64_t ElementsIn(std::int64_t step) const {
    return CheckpointFolder(path_).Open(step, OwnerOf(kLargeDims))->ResidualElements();
  }
  std::string PathOf(std::int64_t step, const std::string& name) const {
    return CheckpointFolder(path_).PathOf(step) + "/" + name;
  }

  const ParameterLayout layout_ = WholeLayout(kLargeDims);
};

bool SameBits(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

TEST_F(ResidualsTest, AsManyRanksGetTheirOwnBackBitForBit) {
  for (const std::size_t ranks : {1U, 2U, 4U}) {
    const auto step = static_cast<std::int64_t>(ranks);
    const Residuals written = Draw(ranks);
    ASSERT_EQ(Save(step, written), "saved");
    EXPECT_EQ(Newest(kLargeDims).step, step);
    EXPECT_EQ(ElementsIn(step), step * layout_.size());
    const Residuals read = ReadBy(step, step);
    for (std::size_t rank = 0; rank < ranks; ++rank)
      EXPECT_TRUE(SameBits(read[rank], written[rank])) << rank << " of " << ranks;
  }
}

TEST_F(ResidualsTest, OtherNumbersOfRanksAddUpInTheOrderOfTheShards) {
  const Residuals written = Draw(4);
  ASSERT_EQ(Save(1, written), "saved");
  const Residuals by_three = ReadBy(3, 1), by_one = ReadBy(1, 1), by_six = ReadBy(6, 1);
  std::vector<float> first(Elements()), all(Elements());
  for (std::size_t i = 0; i < Elements(); ++i) {
    first[i] = written[0][i] + written[3][i];
    all[i] = ((written[0][i] + written[1][i]) + written[2][i]) + written[3][i];
  }
  EXPECT_TRUE(SameBits(by_three[0], first));
  EXPECT_TRUE(SameBits(by_three[1], written[1]));
  EXPECT_TRUE(SameBits(by_three[2], written[2]));
  EXPECT_TRUE(SameBits(by_one[0], all));
  EXPECT_TRUE(SameBits(by_six[3], written[3]));
  for (const std::size_t rank : {4, 5})
    EXPECT_TRUE(SameBits(by_six[rank], std::vector<float>(Elements(), 0.0F)));
}

TEST_F(ResidualsTest, TheSumIsKeptFromFourToThreeToOneToTwoRanks) {
  Residuals held = Draw(4);
  std::vector<double> sums(Elements()), sizes(Elements());
  for (const auto& of_rank : held) {
    for (std::size_t i = 0; i < Elements(); ++i) {
      sums[i] += static_cast<double>(of_rank[i]);
      sizes[i] += std::abs(static_cast<double>(of_rank[i]));
    }
  }
  std::int64_t step = 0;
  for (const std::int64_t ranks : {3, 1, 2}) {
    ASSERT_EQ(Save(++step, held), "saved");
    held = ReadBy(ranks, step);
  }
  for (std::size_t i = 0; i < Elements(); ++i) {
    const double sum = static_cast<double>(held[0][i]) + static_cast<double>(held[1][i]);
    // Three additions of floats, each of which rounds by half a unit in the last place.
    ASSERT_NEAR(sum, sums[i], 3.01 * std::ldexp(sizes[i], -24)) << i;
  }
}

TEST_F(ResidualsTest, ThoseThatAreZeroAreNotWrittenAndReadAsZero) {
  Residuals residuals = Draw(2);
  SavingRanks writers = WritersOf(2);
  std::fill(residuals[1].begin(), residuals[1].end(), 0.0F);
  ASSERT_EQ(SaveWith(writers, 1, residuals), "saved");
  EXPECT_EQ(ElementsIn(1), layout_.size());
  EXPECT_TRUE(SameBits(ReadBy(2, 1)[0], residuals[0]));
  EXPECT_TRUE(SameBits(ReadBy(2, 1)[1], residuals[1]));
  // The same writers, the other way round.
  std::swap(residuals[0], residuals[1]);
  ASSERT_EQ(SaveWith(writers, 2, residuals), "saved");
  EXPECT_EQ(ElementsIn(2), layout_.size());
  EXPECT_TRUE(SameBits(ReadBy(2, 2)[1], residuals[1]));
  // A third rank's reading of two: the sum is in the second alone.
  EXPECT_TRUE(SameBits(ReadBy(3, 2)[1], residuals[1]));
}

TEST_F(ResidualsTest, ARunWithoutThemReadsTheRestAndIsToldHowManyThereAre) {
  ASSERT_EQ(Save(1, Draw(3)), "saved");
  EXPECT_EQ(Check(1, kLargeDims), "whole");
  EXPECT_EQ(ElementsIn(1), 3 * layout_.size());
  ASSERT_EQ(CheckpointTest::Save(2, {.ranks = 3}, kLargeDims), "saved");
  EXPECT_EQ(ElementsIn(2), 0);
  for (const auto& of_rank : ReadBy(2, 2))
    EXPECT_TRUE(SameBits(of_rank, std::vector<float>(Elements(), 0.0F)));
}

/// Bytes of a shard that are residuals, by rank 1 of two, whose part of the state is written first.
TEST_F(ResidualsTest, FlippedOrTornResidualsAreRefused) {
  for (const std::int64_t step : {1, 2}) ASSERT_EQ(Save(step, Draw(2)), "saved");
  const std::string path = PathOf(2, "shard-00001.bin");
  const std::string bytes = ReadFile(path, std::size_t{1} << 26).value();
  const std::size_t begin = bytes.size() - Elements() * sizeof(float);
  for (const std::size_t at : {begin, begin + Elements() * 2 + 1, bytes.size() - 1}) {
    std::string flipped = bytes;
    flipped[at] = static_cast<char>(flipped[at] ^ 4);
    std::ofstream(path, std::ios::binary) << flipped;
    const NewestCheckpoint newest = Newest(kLargeDims);
    EXPECT_EQ(newest.step, 1);
    ASSERT_EQ(newest.refused.size(), 1U);
    EXPECT_THAT(newest.refused[0], testing::AllOf(HasSubstr(path), HasSubstr("hash")));
    EXPECT_THROW(ReadBy(2, 2), std::runtime_error) << "a rank that did not verify";
  }
  for (const std::size_t size : {begin, bytes.size() - 4}) {
    std::ofstream(path, std::ios::binary) << bytes.substr(0, size);
    EXPECT_EQ(Newest(kLargeDims).step, 1);
    EXPECT_THROW(ReadBy(2, 2), std::runtime_error);
  }
  std::ofstream(path, std::ios::binary) << bytes;
  EXPECT_EQ(Newest(kLargeDims).step, 2);
}

}  // namespace
}  // namespace adaptive_train::checkpoint_residuals_test
