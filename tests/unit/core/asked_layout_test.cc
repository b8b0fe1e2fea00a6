// Layouts by hand: what a configuration asks for, and what does not fit its other keys.
#include "core/asked_layout.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace adaptive_train::asked_layout_test {
namespace {

using ::testing::HasSubstr;

/// Of a model of seven blocks.
Config With(const std::string& layout, AutoInt pipeline = {}, AutoInt interleave = {},
            const std::string& schedule = "auto") {
  Config config;
  config.model.layers = 7;
  config.parallel.layout = layout;
  config.parallel.pipeline = pipeline;
  config.parallel.interleave = interleave;
  config.parallel.schedule = schedule;
  return config;
}

/// "stages x chunks", or what is wrong.
std::string Shape(const Config& config) {
  const auto asked = AskedLayoutOf(config);
  if (!asked) {
    EXPECT_EQ(asked.error().message.find('\n'), std::string::npos);
    EXPECT_EQ(asked.error().exit_code, ExitCode::kUsage);
    return asked.error().message;
  }
  if (!*asked) return "auto";
  EXPECT_EQ((*asked)->pipeline * (*asked)->interleave, static_cast<int>((*asked)->chunks.size()));
  return std::to_string((*asked)->pipeline) + " x " + std::to_string((*asked)->interleave);
}

TEST(AskedLayout, TheTextDecidesWhereNothingElseDoes) {
  EXPECT_EQ(Shape(With("auto", 4)), "auto");
  EXPECT_EQ(Shape(With("Et*7L")), "1 x 1");
  EXPECT_EQ(Shape(With("Et*3|(tt|)*2L")), "4 x 1");
  EXPECT_EQ(Shape(With("Et*3|(tt|)*2L", 4)), "4 x 1");
  EXPECT_EQ(Shape(With("Et*3|(tt|)*2L", 2)), "2 x 2");
  EXPECT_EQ(Shape(With("Et*3|(tt|)*2L", {}, 2)), "2 x 2");
  EXPECT_EQ(Shape(With("Et*3|(tt|)*2L", 2, 2)), "2 x 2");
  EXPECT_EQ(Shape(With("Et*3|(tt|)*2L", {}, {}, "1f1b")), "4 x 1");
  EXPECT_EQ(Shape(With("Et*3|(tt|)*2L", {}, {}, "breadth-first")), "2 x 2");
  EXPECT_EQ(Shape(With("Et*3|(tt|)*2L", 4, {}, "interleaved")), "4 x 1");
  const auto asked = AskedLayoutOf(With("Et*3|(tt|)*2L"));
  EXPECT_EQ((*asked)->chunks, (std::vector<StageLayers>{{0, 4}, {4, 6}, {6, 8}, {8, 9}}));
}

TEST(AskedLayout, RefusesByNameWhatIsWrongInTheText) {
  EXPECT_THAT(Shape(With("Et*3|x")), HasSubstr("parallel.layout: stage layout, character 6, 'x'"));
  EXPECT_THAT(Shape(With("Et*3|L")), HasSubstr("parallel.layout: stage layout: 3 blocks (t), the "
                                               "model has 7"));
  EXPECT_EQ(Shape(With("Et*3||t*4L")),
            "parallel.layout: stage 1 of 0 to 2 has no layer; each needs E, t or L");
  EXPECT_THAT(Shape(With("Et*7L|")), HasSubstr("stage 1 of 0 to 1 has no layer"));
}

TEST(AskedLayout, RefusesNumbersThatDoNotFit) {
  EXPECT_EQ(Shape(With("Et*3|(tt|)*2L", 3)),
            "parallel.layout has 4 stages: parallel.pipeline = 3 needs 3 or a multiple of it");
  EXPECT_EQ(Shape(With("Et*3|t*4L", 1)),
            "parallel.layout has 2 stages: parallel.pipeline = 1 needs one");
  EXPECT_EQ(Shape(With("Et*3|(tt|)*2L", 2, 1)),
            "parallel.layout has 4 stages: parallel.pipeline = 2 and parallel.interleave = 1 need "
            "2");
  EXPECT_EQ(Shape(With("Et*3|(tt|)*2L", {}, 3)),
            "parallel.layout has 4 stages: 3 chunks per rank (parallel.interleave) need a multiple "
            "of 3");
  EXPECT_THAT(Shape(With("Et*3|t*4L", {}, 2)), HasSubstr("2 stages, all of one rank"));
  EXPECT_EQ(Shape(With("Et*3|(tt|)*2L", 2, {}, "zb-h1")),
            "parallel.layout has 4 stages, 2 of each rank: they need parallel.schedule = "
            "\"interleaved\", \"breadth-first\" or \"auto\"");
}

}  // namespace
}  // namespace adaptive_train::asked_layout_test
