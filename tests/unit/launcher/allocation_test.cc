// What Slurm's variables say.
#include "launcher/nodes/allocation.h"

#include <gtest/gtest.h>

namespace adaptive_train {
namespace {

TEST(ParseCpusPerNode, ReadsWhatSlurmWrites) {
  EXPECT_EQ(*ParseCpusPerNode("8"), (std::vector<int>{8}));
  EXPECT_EQ(*ParseCpusPerNode("8(x2),4"), (std::vector<int>{8, 8, 4}));
  EXPECT_EQ(*ParseCpusPerNode("1,2(x1),3(x2)"), (std::vector<int>{1, 2, 3, 3}));
}

TEST(ParseCpusPerNode, RefusesAllElse) {
  for (const char* text : {"", "8,", ",8", "x", "8(x2", "8(2)", "8(x)", "8(x0)", "0", "-1", "8 ",
                           "8(x99999999999)", "8(x70000)", "999999999999"}) {
    EXPECT_FALSE(ParseCpusPerNode(text)) << text;
  }
}

}  // namespace
}  // namespace adaptive_train
