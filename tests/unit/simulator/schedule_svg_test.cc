// The picture of a schedule.
#include "launcher/simulator/schedule_svg.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/schedule/compute_order.h"
#include "core/schedule/passes.h"

namespace adaptive_train::schedule_svg_test {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

SchedulePlay Played(ScheduleKind kind, const ScheduleShape& shape, double slower = 1) {
  const Schedule schedule =
      WithPasses(ComputeOrder(kind, shape).value(), {.gather = true, .reduce = true});
  PlayCosts costs;
  costs.stages.assign(static_cast<std::size_t>(schedule.stages), {.forward = slower,
                                                                  .backward_input = slower,
                                                                  .backward_weight = 1,
                                                                  .reduce = 1,
                                                                  .gather = 0.5,
                                                                  .step = 0.5});
  costs.transfer_s.assign(costs.stages.size() - 1, 0.1);
  return PlaySchedule(schedule, costs);
}

TEST(ScheduleSvgTest, HasARowForEachRankAndAColourForEachHalfOfABackward) {
  const std::string svg =
      ScheduleSvg(Played(ScheduleKind::kZeroBubbleH1, {4, 1, 6}), nullptr, "zb-h1");
  EXPECT_THAT(svg, HasSubstr("zb-h1: planned "));
  EXPECT_THAT(svg, HasSubstr(">3</text>"));
  EXPECT_THAT(svg, HasSubstr(">backward, input<"));
  EXPECT_THAT(svg, HasSubstr(">backward, weights<"));
  EXPECT_THAT(svg, Not(HasSubstr(">backward<")));
  EXPECT_THAT(svg, Not(HasSubstr("measured")));
  EXPECT_THAT(svg, Not(HasSubstr("paler")));
}

TEST(ScheduleSvgTest, MeasuredStandsBelowPlannedAndLaterChunksArePaler) {
  const SchedulePlay planned = Played(ScheduleKind::kInterleaved, {3, 2, 6});
  const SchedulePlay measured = Played(ScheduleKind::kInterleaved, {3, 2, 6}, 1.2);
  const std::string svg = ScheduleSvg(planned, &measured, "interleaved");
  EXPECT_THAT(svg, HasSubstr(">2 planned<"));
  EXPECT_THAT(svg, HasSubstr(">measured<"));
  EXPECT_THAT(svg, HasSubstr("; measured "));
  EXPECT_THAT(svg, HasSubstr("paler: later chunks"));
  EXPECT_THAT(svg, HasSubstr("fill-opacity=\"0.70\""));
}

}  // namespace
}  // namespace adaptive_train::schedule_svg_test
