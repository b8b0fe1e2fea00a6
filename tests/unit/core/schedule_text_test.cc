// Schedules as text.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/schedule/passes.h"
#include "core/schedule/schedule.h"
#include "tests/unit/core/schedule_shapes.h"

namespace adaptive_train::schedule_text_test {
namespace {

using ::testing::HasSubstr;
using enum ActionKind;

TEST(ActionText, NamesStageKindAndMicroBatch) {
  EXPECT_EQ(ToText({2, kForward, 0}), "2F0");
  EXPECT_EQ(ToText({2, kBackward, 0}), "2B0");
  EXPECT_EQ(ToText({2, kBackwardInput, 10}), "2I10");
  EXPECT_EQ(ToText({2, kBackwardWeight, 0}), "2W0");
  EXPECT_EQ(ToText({1, kSendForward, 3}), "1SEND_F3");
  EXPECT_EQ(ToText({2, kReceiveForward, 3}), "2RECV_F3");
  EXPECT_EQ(ToText({12, kStep, 7}), "12STEP7");
}

TEST(ActionText, ReadsEveryKindBack) {
  for (int kind = 0; kind < kActionKinds; ++kind) {
    const Action action{3, static_cast<ActionKind>(kind), 45};
    EXPECT_EQ(ActionFromText(ToText(action)).value(), action);
  }
}

TEST(ActionText, RefusesOtherTextInOneLine) {
  for (const char* text :
       {"", "F0", "2F", "2X0", "2f0", "-1F0", "2F-1", "2F0 ", " 2F0", "2F0x", "1000000F0",
        "2F1000000", "99999999999999999999F0", "2SEND3", "2SEND_", "+1F0", "2\nF0"}) {
    const auto action = ActionFromText(text);
    ASSERT_FALSE(action) << text;
    EXPECT_EQ(action.error().message.find('\n'), std::string::npos);
    EXPECT_THAT(action.error().message, HasSubstr("an action is a stage"));
  }
}

TEST(ScheduleText, IsALineForEachRank) {
  const Schedule schedule = ComputeOrder(ScheduleKind::kOneForwardOneBackward, {2, 1, 2}).value();
  EXPECT_EQ(ToCsv(schedule), "0F0,0F1,0B0,0B1\n1F0,1B0,1F1,1B1\n");
}

TEST(ScheduleText, ReadsEveryScheduleBack) {
  for (const NamedSchedule& named : AllSchedules()) {
    const Schedule schedule =
        WithPasses(named.schedule, {.gather = true, .reduce = true, .steps = named.shape.steps});
    const auto read = ScheduleFromCsv(ToCsv(schedule));
    ASSERT_TRUE(read) << read.error().message;
    EXPECT_EQ(*read, schedule) << named.name;
  }
}

TEST(ScheduleText, ForgivesBlanksAndCarriageReturns) {
  const auto read = ScheduleFromCsv(" 0F0 ,\t0B0\r\n1F0,1B0");
  ASSERT_TRUE(read) << read.error().message;
  EXPECT_EQ(ToCsv(*read), "0F0,0B0\n1F0,1B0\n");
}

TEST(ScheduleText, SaysWhereItIsWrong) {
  const auto message = [](std::string_view text) { return ScheduleFromCsv(text).error().message; };
  EXPECT_THAT(message("0F0,0B0\n1F0,oops"), HasSubstr("row 2, column 2: 'oops'"));
  EXPECT_THAT(message("0F0,,0B0"), HasSubstr("row 1, column 2: ''"));
  EXPECT_THAT(message("0F0,0B0,"), HasSubstr("row 1, column 3: ''"));
  EXPECT_THAT(message(""), HasSubstr("without actions"));
  EXPECT_THAT(message("\n\n"), HasSubstr("without actions"));
  EXPECT_THAT(message("999999F999999"), HasSubstr("need 2000000000000 or more"));
}

TEST(MostInFlight, IsOfOneStageAndEndsWithTheBackwardThatFreesItsState) {
  const auto row = [](std::string_view text) {
    return ScheduleFromCsv(text).value().ranks.front();
  };
  EXPECT_EQ(MostInFlight(row("0F0,0F1,0F2,0B0,0B1,0B2"), 0), 3);
  EXPECT_EQ(MostInFlight(row("0F0,0B0,0F1,0B1"), 0), 1);
  EXPECT_EQ(MostInFlight(row("0F0,0I0,0F1,0W0,0I1,0W1"), 0), 2) << "halves of a backward";
  const auto chunks = row("0F0,0F1,1F0,1B0,0B0,1F1,1B1,0B1");
  EXPECT_EQ(MostInFlight(chunks, 0), 2);
  EXPECT_EQ(MostInFlight(chunks, 1), 1);
  EXPECT_EQ(MostInFlight(chunks, 2), 0);
  EXPECT_EQ(MostInFlight({}, 0), 0);
}

}  // namespace
}  // namespace adaptive_train::schedule_text_test
