// What Slurm's variables say.
#include "launcher/nodes/allocation.h"

#include <gtest/gtest.h>

#include <cstdlib>

namespace adaptive_train::allocation_test {
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

TEST(FindAllocation, RefusesAHeterogeneousJobByName) {
  ::setenv("SLURM_JOB_ID", "17", 1);
  ::setenv("SLURM_HET_SIZE", "2", 1);
  const auto allocation = FindAllocation();
  ::unsetenv("SLURM_JOB_ID");
  ::unsetenv("SLURM_HET_SIZE");
  ASSERT_FALSE(allocation);
  EXPECT_EQ(allocation.error().exit_code, ExitCode::kPreflight);
  EXPECT_NE(allocation.error().message.find("heterogeneous job of 2 components"), std::string::npos)
      << allocation.error().message;
}

}  // namespace
}  // namespace adaptive_train::allocation_test
