// The masked objective: shares, places, and what they depend on.
#include "runtime/data/masked_language.h"

#include <gtest/gtest.h>

#include <numeric>
#include <vector>

namespace adaptive_train::masked_language_test {
namespace {

struct Hidden {
  std::vector<std::int32_t> before, tokens, targets;
};

Hidden Hide(const MaskedLanguage& masked, std::int64_t sequence, std::uint32_t round,
            std::uint32_t sample) {
  Hidden h;
  h.before.resize(static_cast<std::size_t>(sequence));
  std::iota(h.before.begin(), h.before.end(), 0);
  h.tokens = h.before;
  h.targets.resize(h.before.size());
  masked.Hide(round, sample, h.tokens, h.targets);
  return h;
}

TEST(MaskedLanguage, HidesFifteenPercentOfASampleAndLeavesTheRest) {
  for (const std::int64_t sequence : {1, 2, 3, 7, 64, 512}) {
    const MaskedLanguage masked(sequence, 1000, 3);
    const Hidden h = Hide(masked, sequence, 1, 0);
    std::int64_t targets = 0;
    for (std::size_t i = 0; i < h.targets.size(); ++i) {
      if (h.targets[i] < 0) {
        EXPECT_EQ(-1, h.targets[i]);
        EXPECT_EQ(h.before[i], h.tokens[i]);
      } else {
        EXPECT_EQ(h.before[i], h.targets[i]);
        ++targets;
      }
    }
    EXPECT_EQ(masked.targets_per_sample(), targets);
  }
  EXPECT_EQ(77, MaskedLanguage(512, 1000, 3).targets_per_sample());
  EXPECT_EQ(1, MaskedLanguage(2, 1000, 3).targets_per_sample());
}

TEST(MaskedLanguage, ReplacesEightyTenTenInAHundredByMaskOthersAndThemselves) {
  constexpr std::int64_t kSequence = 512, kVocab = 1000;
  const MaskedLanguage masked(kSequence, kVocab, 3);
  int mask = 0, same = 0, other = 0, all = 0;
  std::vector<int> places(kSequence);
  for (std::uint32_t sample = 0; sample < 400; ++sample) {
    const Hidden h = Hide(masked, kSequence, 1, sample);
    for (std::size_t i = 0; i < h.targets.size(); ++i) {
      if (h.targets[i] < 0) continue;
      ++all;
      ++places[i];
      EXPECT_LT(h.tokens[i], kVocab);
      ++(h.tokens[i] == masked.mask_token() ? mask : h.tokens[i] == h.targets[i] ? same : other);
    }
  }
  // 30,800 draws: four standard deviations are below 0.01.
  EXPECT_NEAR(0.8, static_cast<double>(mask) / all, 0.01);
  EXPECT_NEAR(0.1, static_cast<double>(same) / all, 0.01);
  EXPECT_NEAR(0.1, static_cast<double>(other) / all, 0.01);
  for (const int times : places)
    EXPECT_NEAR(60, times, 45) << "every place is chosen about as often";
}

TEST(MaskedLanguage, FollowsFromSeedRoundAndSampleAlone) {
  const MaskedLanguage masked(64, 100, 3), again(64, 100, 3), other(64, 100, 4);
  EXPECT_EQ(Hide(masked, 64, 5, 7).targets, Hide(again, 64, 5, 7).targets);
  EXPECT_EQ(Hide(masked, 64, 5, 7).tokens, Hide(again, 64, 5, 7).tokens);
  EXPECT_NE(Hide(masked, 64, 5, 7).targets, Hide(masked, 64, 6, 7).targets);
  EXPECT_NE(Hide(masked, 64, 5, 7).targets, Hide(masked, 64, 5, 8).targets);
  EXPECT_NE(Hide(masked, 64, 5, 7).targets, Hide(other, 64, 5, 7).targets);
}

}  // namespace
}  // namespace adaptive_train::masked_language_test
