// Faults as people write them.
#include "core/injection.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace adaptive_train::injection_test {
namespace {

using testing::HasSubstr;
using testing::StartsWith;
using Kind = Injection::Kind;

std::string Refusal(std::string_view text) {
  const auto injections = ParseInjections(text);
  return injections ? "accepted" : injections.error().message;
}

TEST(ParseInjections, ReadsEachKind) {
  const auto faults = ParseInjections(
      "kill rank 3 at step 20; freeze rank 1 at step 30; cut node n2 at step 35; slow n4 to 30 % "
      "from "
      "40 to 60; fail save at 50");
  ASSERT_TRUE(faults) << faults.error().message;
  EXPECT_EQ(*faults, (std::vector<Injection>{{Kind::kKill, 3, "", 20},
                                             {Kind::kFreeze, 1, "", 30},
                                             {Kind::kCut, -1, "n2", 35},
                                             {Kind::kSlow, -1, "n4", 40, 60, 30},
                                             {Kind::kFailSave, -1, "", 50}}));
}

TEST(ParseInjections, TakesOtherWaysToWriteThemAndPrintsOne) {
  const auto faults = ParseInjections(
      ";slow rank 2 to 12.5% from step 4 to step 4;;slow node a-b.c to 99% from 1 to 2; ");
  ASSERT_TRUE(faults) << faults.error().message;
  ASSERT_EQ(faults->size(), 2u);
  EXPECT_EQ(ToText(faults->at(0)), "slow rank 2 to 12.5 % from step 4 to 4");
  EXPECT_EQ(ToText(faults->at(1)), "slow node a-b.c to 99 % from step 1 to 2");
  for (const Injection& fault : *faults) EXPECT_EQ(ParseInjections(ToText(fault))->at(0), fault);
}

TEST(ParseInjections, NamesTheWordThatIsWrongAndWhatIsAllowed) {
  EXPECT_THAT(Refusal("kill rnk 3 at step 20"),
              StartsWith("fault 1: 'rnk' instead of rank; allowed are: kill rank R"));
  EXPECT_THAT(Refusal("kill rank 3 at step 20; burn node n1"),
              StartsWith("fault 2: 'burn' instead of kill, freeze, cut, slow or fail;"));
  EXPECT_THAT(Refusal("kill rank 3"), HasSubstr("the end instead of at;"));
  EXPECT_THAT(Refusal("kill rank -1 at 3"), HasSubstr("'-1' instead of a rank from 0 to 4095;"));
  EXPECT_THAT(Refusal("kill rank 1 at step 0"), HasSubstr("'0' instead of a step from 1 to"));
  EXPECT_THAT(Refusal("kill rank 1 at step 5 now"),
              HasSubstr("'now' instead of the end, or a semicolon;"));
  EXPECT_THAT(Refusal("slow n1 to 100 % from 1 to 2"),
              HasSubstr("'100' instead of a percentage from 1"));
  EXPECT_THAT(Refusal("slow n1 to 30 from 1 to 2"), HasSubstr("'from' instead of %;"));
  EXPECT_THAT(Refusal("slow n1 to 30 % from 9 to 2"), HasSubstr("'2' instead of a step from 9 to"));
  EXPECT_THAT(Refusal("cut node n[1-2] at step 3"),
              HasSubstr("'n[1-2]' instead of the name of a node;"));
  EXPECT_THAT(Refusal("kill rank 9\x1b[2J at 1"), HasSubstr("'9\\x1b[2J' instead of a rank"));
  EXPECT_THAT(Refusal(" ; "), StartsWith("no fault; allowed are: kill"));
  EXPECT_THAT(Refusal(std::string(20000, 'k')), StartsWith("faults of 20000 bytes;"));
  std::string many;
  for (int i = 0; i < 65; ++i) many += "fail save at 1;";
  EXPECT_EQ(Refusal(many), "more than 64 faults");
}

TEST(InjectionsFile, ReadsBackAndRefusesWhatIsNone) {
  const std::vector<RunInjection> faults = {{{Kind::kKill, 3, "", 20}, true},
                                            {{Kind::kSlow, -1, "n4", 40, 60, 30}, false}};
  const auto again = InjectionsFromJson(ToJson(faults));
  ASSERT_TRUE(again) << again.error().message;
  ASSERT_EQ(again->size(), 2u);
  EXPECT_EQ(again->at(0).injection, faults[0].injection);
  EXPECT_TRUE(again->at(0).done);
  EXPECT_EQ(again->at(1).injection, faults[1].injection);
  EXPECT_FALSE(again->at(1).done);
  for (
      const char* text :
      {"", "[]", R"({"format_version":1})",
       R"({"format_version":1,"injections":[{"fault":"die","done":false}]})",
       R"({"format_version":1,"injections":[{"fault":"fail save at 1;fail save at 2","done":false}]})",
       R"({"format_version":1,"injections":[{"fault":"fail save at 1"}]})"})
    EXPECT_FALSE(InjectionsFromJson(text)) << text;
}

}  // namespace
}  // namespace adaptive_train::injection_test
