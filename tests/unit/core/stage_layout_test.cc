// Layouts written by hand.
#include "core/schedule/stage_layout.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <random>

namespace adaptive_train::stage_layout_test {
namespace {

using ::testing::HasSubstr;

std::vector<StageLayers> Stages(std::string_view text, int blocks) {
  const auto stages = StageLayoutFromText(text, blocks);
  EXPECT_TRUE(stages) << stages.error().message;
  return stages ? *stages : std::vector<StageLayers>{};
}

TEST(StageLayoutTest, ReadsLettersBarsTimesAndGroups) {
  const std::vector<StageLayers> four{{0, 4}, {4, 6}, {6, 8}, {8, 9}};
  EXPECT_EQ(Stages("Ettt|tt|tt|L", 7), four);
  EXPECT_EQ(Stages("Et*3|(tt|)*2L", 7), four);
  EXPECT_EQ(Stages(" Et*3| (tt|)*1,(tt|)*1,L", 7), four);
  EXPECT_EQ(Stages("EL", 0), (std::vector<StageLayers>{{0, 2}}));
}

TEST(StageLayoutTest, StagesMayBeEmpty) {
  EXPECT_EQ(Stages("E||t|*2|L", 1),
            (std::vector<StageLayers>{{0, 1}, {1, 1}, {1, 2}, {2, 2}, {2, 2}, {2, 3}}));
  EXPECT_EQ(Stages("|EtL|", 1), (std::vector<StageLayers>{{0, 0}, {0, 3}, {3, 3}}));
}

TEST(StageLayoutTest, PrintsTheShortForm) {
  EXPECT_EQ(ToText(Stages("Ettt|tt|tt|L", 7)), "Et*3|(tt|)*2L");
  EXPECT_EQ(ToText(Stages("E|t|t|t|tL", 4)), "E|(t|)*3tL");
  EXPECT_EQ(ToText(Stages("EttL", 2)), "EttL");
  EXPECT_EQ(ToText(Stages("E||||tL", 1)), "E|(|)*3tL");
}

TEST(StageLayoutTest, WhatItPrintsReadsBack) {
  std::mt19937_64 random(1);
  for (int draw = 0; draw < 1000; ++draw) {
    const int blocks = static_cast<int>(random() % 20), layers = blocks + 2;
    std::vector<int> cuts{0, layers};
    for (std::size_t i = random() % 8; i > 0; --i)
      cuts.push_back(static_cast<int>(random() % static_cast<unsigned>(layers + 1)));
    std::sort(cuts.begin(), cuts.end());
    std::vector<StageLayers> stages;
    for (std::size_t i = 1; i < cuts.size(); ++i) stages.push_back({cuts[i - 1], cuts[i]});
    EXPECT_EQ(Stages(ToText(stages), blocks), stages) << ToText(stages);
  }
}

TEST(StageLayoutTest, SaysInOneLineWhatIsWrong) {
  const auto message = [](std::string_view text) {
    const auto stages = StageLayoutFromText(text, 4);
    const std::string said = stages ? "accepted" : stages.error().message;
    EXPECT_EQ(said.find('\n'), std::string::npos);
    return said;
  };
  EXPECT_THAT(message("Et*3|(tt|)*29,m|L"),
              HasSubstr("character 15, 'm': this model has no multi-token prediction"));
  EXPECT_THAT(message("Ettx"), HasSubstr("character 4, 'x': nothing of that name"));
  EXPECT_THAT(message("Ett\n"), HasSubstr("character 4, '?'"));
  EXPECT_THAT(message("Et*ttL"), HasSubstr("character 4, 't': a number above 0 must follow *"));
  EXPECT_THAT(message("Et*"), HasSubstr("the end: a number above 0 must follow *"));
  EXPECT_THAT(message("Et*0L"), HasSubstr("a number above 0"));
  EXPECT_THAT(message("Et*-1L"), HasSubstr("a number above 0"));
  EXPECT_THAT(message("E(tt|"), HasSubstr("the end: a group without its )"));
  EXPECT_THAT(message("E(t(t))L"), HasSubstr("a group within a group"));
  EXPECT_THAT(message("Ett)L"), HasSubstr("character 4, ')'"));
  EXPECT_THAT(message("ttttL"), HasSubstr("E, the embedding"));
  EXPECT_THAT(message("tEtttL"), HasSubstr("E, the embedding"));
  EXPECT_THAT(message("EEttttL"), HasSubstr("E, the embedding"));
  EXPECT_THAT(message("Etttt"), HasSubstr("L, the head"));
  EXPECT_THAT(message("EttLtt"), HasSubstr("L, the head"));
  EXPECT_THAT(message(""), HasSubstr("E, the embedding"));
  EXPECT_THAT(message("E|tt|L"), HasSubstr("2 blocks (t), the model has 4"));
  EXPECT_THAT(message("Ett" + std::string("|*5000") + "ttL"), HasSubstr("5001 stages, at most"));
  EXPECT_THAT(message("E(t*1000)*1000L"), HasSubstr("more than 100000 layers"));
  EXPECT_THAT(message("Et*99999999999999999999L"), HasSubstr("a number above 0"));
  EXPECT_THAT(message("Et*99999999999L"), HasSubstr("more than 100000 layers"));
}

}  // namespace
}  // namespace adaptive_train::stage_layout_test
