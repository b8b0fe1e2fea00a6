// What becomes of a job whose batch host is gone, by a scontrol that says what it is told to.
#include "launcher/steps/lost_host.h"

#include <gtest/gtest.h>
#include <stdlib.h>

#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>

#include "core/rank_exit.h"
#include "tests/unit/launcher/temporary_folder.h"

namespace adaptive_train::lost_host_test {
namespace {

std::string Node(const std::string& state) {
  return "NodeName=n1 Arch=x86_64 CoresPerSocket=1 State=" + state + " ThreadsPerCore=1\n";
}

TEST(ShowsLostNode, OneThatIsDownOrDoesNotRespond) {
  for (const char* state : {"DOWN", "DOWN*", "IDLE*", "ALLOCATED*", "MIXED+NOT_RESPONDING"})
    EXPECT_TRUE(ShowsLostNode(Node(state))) << state;
  for (const char* state : {"IDLE", "ALLOCATED", "MIXED+DRAIN", "COMPLETING"})
    EXPECT_FALSE(ShowsLostNode(Node(state))) << state;
  EXPECT_FALSE(ShowsLostNode("")) << "slurmctld does not answer";
}

class RequeueIfLostTest : public testing::Test {
 protected:
  // What is shown the Nth time is in NAME-N, or else in the last such file.
  RequeueIfLostTest() {
    std::ofstream(home_.Path() + "/scontrol") << "#!/bin/bash\ncd " << home_.Path() << R"(
if [[ $1 == requeue ]]; then echo "$2" >>requeued; exit; fi
times=$(cat "times-$2" 2>/dev/null || echo 0)
times=$((times + 1))
echo "$times" >"times-$2"
while [[ ! -e $2-$times ]]; do times=$((times - 1)); done
cat "$2-$times"
)";
    std::filesystem::permissions(home_.Path() + "/scontrol", std::filesystem::perms::owner_all);
    ::setenv("PATH", (home_.Path() + ":" + path_).c_str(), 1);
  }
  ~RequeueIfLostTest() override { ::setenv("PATH", path_.c_str(), 1); }

  void Shows(const std::string& what, const std::string& text) {
    std::ofstream(home_.Path() + "/" + what) << text;
  }
  std::string Requeued() {
    std::ostringstream text;
    text << std::ifstream(home_.Path() + "/requeued").rdbuf();
    return text.str();
  }

  test::TemporaryFolder home_;
  const std::string path_ = ::getenv("PATH");
};

const std::string kRuns = "JobId=7 JobName=job.sh JobState=RUNNING Reason=None\n";
const std::string kIsOver = "JobId=7 JobName=job.sh JobState=COMPLETED Reason=None\n";

TEST_F(RequeueIfLostTest, AHostThatIsLostTwiceInARow) {
  Shows("job-1", kRuns);
  Shows("node-1", Node("DOWN*"));
  EXPECT_EQ(RequeueIfLost(7, "n1"), ToInt(RankExit::kLauncherLost));
  EXPECT_EQ(Requeued(), "7\n");
}

TEST_F(RequeueIfLostTest, NeitherAfterSingleLostPingsNorOnceTheJobIsOver) {
  Shows("job-1", kRuns);
  Shows("job-4", kIsOver);
  Shows("node-1", Node("IDLE*"));
  Shows("node-2", Node("IDLE"));
  Shows("node-3", Node("IDLE*"));
  EXPECT_EQ(RequeueIfLost(7, "n1"), ToInt(RankExit::kLauncherLost));
  EXPECT_EQ(Requeued(), "");
}

}  // namespace
}  // namespace adaptive_train::lost_host_test
