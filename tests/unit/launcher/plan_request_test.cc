// What a configuration asks of the planner.
#include "launcher/run/plan_request.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace adaptive_train {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

PlanRequest Asking(const std::string& layout, AutoInt pipeline = {},
                   const std::string& schedule = "auto") {
  Config config;
  config.model.layers = 6;
  config.parallel.layout = layout;
  config.parallel.pipeline = pipeline;
  config.parallel.schedule = schedule;
  return RequestOf(config);
}

TEST(RequestOf, ALayoutByHandFixesStagesAndTheirLayers) {
  EXPECT_THAT(Asking("auto").cut, IsEmpty());
  EXPECT_FALSE(Asking("auto").pipeline);
  const PlanRequest request = Asking("E|t*3|tt|tL");
  EXPECT_THAT(request.cut, ElementsAre(0, 1, 4, 6, 8));
  EXPECT_EQ(request.pipeline, 4);
  EXPECT_TRUE(request.schedule.IsOpen()) << "whichever schedule is fastest";
}

TEST(RequestOf, ALayoutByHandOfSeveralChunksFixesThese) {
  const PlanRequest chunks = Asking("E|t*3|tt|tL", 2);
  EXPECT_THAT(chunks.cut, ElementsAre(0, 1, 4, 6, 8));
  EXPECT_EQ(chunks.pipeline, 2);
  EXPECT_EQ(chunks.schedule.Chunks(), 2);
  EXPECT_EQ(chunks.schedule.Kind(), ScheduleKind::kInterleaved);
  const PlanRequest one = Asking("E|t*3|tt|tL", 4, "interleaved");
  EXPECT_EQ(one.pipeline, 4);
  EXPECT_EQ(one.schedule.Chunks(), 1);
}

}  // namespace
}  // namespace adaptive_train
