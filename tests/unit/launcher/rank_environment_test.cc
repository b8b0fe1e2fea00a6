// The allow-list of variables that ranks get.
#include "launcher/steps/rank_environment.h"

#include <gtest/gtest.h>

namespace adaptive_train::rank_environment_test {
namespace {

TEST(RankEnvironment, PassesWhatIsListedAndNothingElse) {
  const Environment ranks = RankEnvironment({{"PATH", "/bin"},
                                             {"HOME", "/h"},
                                             {"SLURM_JOB_ID", "7"},
                                             {"UCX_TLS", "tcp"},
                                             {"SECRET", "x"},
                                             {"BASH_FUNC_x%%", "()"},
                                             {"LC_ALL", "C"},
                                             {"ADAPTIVE_TRAIN_OPTIONS", "log=info"}});
  EXPECT_EQ(ranks.at("SLURM_JOB_ID"), "7");
  EXPECT_EQ(ranks.at("UCX_TLS"), "tcp");
  EXPECT_EQ(ranks.at("LC_ALL"), "C");
  EXPECT_EQ(
      ranks.count("SECRET") + ranks.count("BASH_FUNC_x%%") + ranks.count("ADAPTIVE_TRAIN_OPTIONS"),
      0u);
}

}  // namespace
}  // namespace adaptive_train::rank_environment_test
