// The picture of a step.
#include "launcher/simulator/timeline_svg.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

#include "tests/unit/simulator/problems.h"

namespace adaptive_train::timeline_svg_test {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

std::size_t Count(const std::string& text, const std::string& part) {
  std::size_t count = 0;
  for (std::size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1))
    ++count;
  return count;
}

TEST(TimelineSvgTest, HasARowAColourAndANumberForWhatIsDone) {
  const std::vector<Span> spans{
      {0, Activity::kForward, 0, 0, 1},   {0, Activity::kBackward, 0, 1, 3},
      {1, Activity::kIdle, -1, 0, 1},     {1, Activity::kForward, 0, 1, 2},
      {0, Activity::kExchange, -1, 2, 4}, {0, Activity::kUpdate, -1, 4, 5}};
  const std::string svg = TimelineSvg(spans, {"n1", "n2"}, "two stages");
  EXPECT_THAT(svg, HasSubstr(">n1<"));
  EXPECT_THAT(svg, HasSubstr(">n2<"));
  EXPECT_THAT(svg, HasSubstr("two stages"));
  EXPECT_THAT(svg, HasSubstr("it ends after 5 s"));
  EXPECT_EQ(Count(svg, ">0</text>"), 3u);  // the first micro-batch
  EXPECT_EQ(Count(svg, "<svg"), 1u);
  EXPECT_EQ(Count(svg, "</svg>"), 1u);
  // The exchange comes first, so that backward is drawn over it.
  EXPECT_LT(svg.rfind("#f2a33a"), svg.rfind("#2f6fb2"));
}

TEST(TimelineSvgTest, SaysWhichRanksAreLeftOut) {
  std::vector<Span> spans;
  std::vector<std::string> labels;
  for (int rank = 0; rank < 100; ++rank) {
    spans.push_back({rank, Activity::kForward, 0, 0, 1});
    labels.push_back("row" + std::to_string(rank) + ".");
  }
  const std::string svg = TimelineSvg(spans, labels, "many");
  EXPECT_THAT(svg, HasSubstr("the first 64 of 100 rows"));
  EXPECT_THAT(svg, HasSubstr(">row63.<"));
  EXPECT_THAT(svg, Not(HasSubstr(">row64.<")));
}

TEST(TimelineSvgTest, NamesCannotBreakThePicture) {
  const std::string svg =
      TimelineSvg({}, {"<script>&\n", std::string(500, 'x')}, "a < b & c > \"d\"");
  EXPECT_THAT(svg, HasSubstr("&lt;script&gt;&amp;?"));
  EXPECT_THAT(svg, HasSubstr("a &lt; b &amp; c &gt;"));
  EXPECT_THAT(svg, Not(HasSubstr(std::string(100, 'x'))));
}

TEST(TimelineSvgTest, AnEndlessOrEmptyStepIsStillAPicture) {
  const double infinite = std::numeric_limits<double>::infinity();
  const std::vector<Span> endless{{0, Activity::kForward, 0, 0, 1e-3},
                                  {0, Activity::kUpdate, -1, 1e-3, infinite}};
  EXPECT_THAT(TimelineSvg(endless, {"n1"}, ""), Not(HasSubstr("inf")));
  EXPECT_THAT(TimelineSvg({}, {}, ""), HasSubstr("</svg>"));
}

TEST(TimelineSvgTest, NamesTheRanksOfALayout) {
  PlanProblem problem =
      EvenProblem{.devices = 4, .layers = 2, .global_batch = 4, .forward_s = 1}.Make();
  problem.node_names = {"red", "green", "blue", "black"};
  const Layout layout = EvenLayout(problem, 2, 2, 1);
  const std::string svg = TimelineSvg(problem, layout, Simulate(problem, layout));
  EXPECT_THAT(svg, HasSubstr(">0 red stage 0<"));
  EXPECT_THAT(svg, HasSubstr(">3 black stage 1<"));
}

}  // namespace
}  // namespace adaptive_train::timeline_svg_test
