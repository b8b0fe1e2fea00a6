#include "spank_plugin/command_line.h"

#include <gtest/gtest.h>

#include <sstream>

namespace adaptive_train::plugin::command_line_test {
namespace {

bool Asks(const std::string& line) {
  std::istringstream words(line);
  std::vector<std::string> arguments;
  for (std::string word; words >> word;) arguments.push_back(word);
  return AsksForAdaptiveTrain(arguments);
}

TEST(CommandLine, TheOptionIsFoundAmongOthers) {
  EXPECT_TRUE(Asks("--adaptive-train job.sh"));
  EXPECT_TRUE(Asks("--adaptive-train=spares=1 job.sh"));
  EXPECT_TRUE(Asks("-N4 --adaptive-train job.sh"));
  EXPECT_TRUE(Asks("-N 4 --time 10 --nodelist n1,n2 -J name --adaptive-train job.sh"));
  EXPECT_TRUE(Asks("--exclusive --no-requeue -HN 2 --adaptive-train"));
  EXPECT_TRUE(Asks("--wrap true --adaptive-train"));
}

TEST(CommandLine, WordsOfTheJobAreNotOptions) {
  EXPECT_FALSE(Asks(""));
  EXPECT_FALSE(Asks("-N 4 job.sh --adaptive-train"));
  EXPECT_FALSE(Asks("-N4 -- --adaptive-train"));
  EXPECT_FALSE(Asks("--comment --adaptive-train job.sh"));
  EXPECT_FALSE(Asks("--adaptive-trains job.sh"));
}

TEST(CommandLine, AnUnknownOptionsWordEndsTheSearch) {
  EXPECT_FALSE(Asks("--site-option word --adaptive-train job.sh"));
  EXPECT_TRUE(Asks("--site-option=word --adaptive-train job.sh"));
}

}  // namespace
}  // namespace adaptive_train::plugin::command_line_test
