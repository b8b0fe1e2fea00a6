// The picture is well-formed XML, has a square for each link with its figures, and fits any number
// of nodes.
#include "launcher/report/link_picture.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace adaptive_train::link_picture_test {
namespace {

Profile Links(int nodes) {
  Profile profile;
  for (int a = 0; a < nodes; ++a) {
    for (int b = 0; b < nodes; ++b) {
      if (a != b)
        profile.links.push_back({"node" + std::to_string(a),
                                 "node" + std::to_string(b),
                                 1e-4,
                                 1e6 * (1 + a + b),
                                 {1, 0, 2e9}});
    }
  }
  return profile;
}

std::ptrdiff_t Count(const std::string& text, const std::string& word) {
  std::ptrdiff_t count = 0;
  for (auto at = text.find(word); at != std::string::npos; at = text.find(word, at + 1)) ++count;
  return count;
}

TEST(LinkPicture, HasASquareForEachPairAndItsFigures) {
  const std::string svg = RenderLinkPicture(Links(4), "Links of <alpha> & co", 2e9);
  EXPECT_EQ(svg.rfind("<svg ", 0), 0u);
  EXPECT_EQ(svg.substr(svg.size() - 7), "</svg>\n");
  EXPECT_NE(svg.find("Links of &lt;alpha&gt; &amp; co"), std::string::npos);
  EXPECT_EQ(Count(svg, "Mbit/s</text>"), 12 + 3) << "a figure each, three on the scale";
  EXPECT_EQ(Count(svg, "100 us</text>"), 12);
  EXPECT_EQ(Count(svg, "<text"), Count(svg, "</text>"));
}

TEST(LinkPicture, AnyNumberOfNodesGivesSaneSizes) {
  for (int nodes : {0, 1, 2, 24, 25, 200}) {
    const std::string svg = RenderLinkPicture(Links(nodes), "t", 2e9);
    EXPECT_EQ(svg.find("nan"), std::string::npos) << nodes;
    EXPECT_EQ(svg.find("inf"), std::string::npos) << nodes;
    EXPECT_EQ(svg.find("width=\"-"), std::string::npos) << nodes;
  }
}

TEST(LinkPicture, EqualLinksLookAlike) {
  Profile profile = Links(3);
  for (LinkMeasurement& link : profile.links) link.bytes_per_second = 5e6;
  EXPECT_EQ(RenderLinkPicture(profile, "t", 2e9).find("nan"), std::string::npos);
}

}  // namespace
}  // namespace adaptive_train::link_picture_test
