// What nodes of a job have said, in any order, and from some of them nothing.
#include "launcher/doctor/job_checks.h"

#include <gmock/gmock.h>

namespace adaptive_train::job_checks_test {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

const std::vector<std::string> kHosts = {"n1", "n2", "n3"};

TEST(JobChecks, WhoSaysNothingHasMissed) {
  EXPECT_THAT(HostsThatMissed("2: reached\n0: reached\n1: reached\n", kHosts), IsEmpty());
  EXPECT_THAT(HostsThatMissed(" 2: reached\n 0: missed\n", kHosts), ElementsAre("n1", "n2"));
  EXPECT_THAT(HostsThatMissed("", kHosts), ElementsAre("n1", "n2", "n3"));
  EXPECT_THAT(HostsThatMissed("x\n: reached\n99: reached\n1 reached\n1: reached it\n", kHosts),
              ElementsAre("n1", "n2", "n3"));
}

TEST(JobChecks, NodesThatDoNotReachEachOtherAreNamed) {
  EXPECT_THAT(PairsThatMissed("2: reached\n0: reached\n1: reached\n", kHosts), IsEmpty());
  EXPECT_THAT(PairsThatMissed("0: reached\n1: missed 0 2 99\n2: busy: cannot listen at port 5: x\n",
                              kHosts),
              ElementsAre("n2 to n1", "n2 to n3", "n3: busy: cannot listen at port 5: x"));
  EXPECT_THAT(PairsThatMissed("0: reached\n2: reached\n", kHosts), ElementsAre("n2: says nothing"));
}

TEST(JobChecks, LikeVersionsAreGood) {
  const Finding none = GpuVersionsAlike("0: - -\n1: - -\n2: - 2.18.3\n", kHosts);
  EXPECT_EQ(none.severity, Severity::kGood);
  EXPECT_EQ(none.what, "no NVIDIA driver on all 3 nodes");
  const Finding alike =
      GpuVersionsAlike("1: 580.95.05 2.28.9\n0: 580.95.05 2.28.9\n2: 580.95.05 2.28.9\n", kHosts);
  EXPECT_EQ(alike.severity, Severity::kGood);
  EXPECT_EQ(alike.what, "driver 580.95.05, NCCL 2.28.9 on all 3 nodes");
}

TEST(JobChecks, ClocksThatAreApartAreTold) {
  const auto alike = [](const std::string& lines) { return ClocksAlike(lines, kHosts, 0.5); };
  EXPECT_EQ(alike("0: 1795932564.1\n1: 1795932564.6\n2: 1795932566.5\n").severity, Severity::kGood);
  const Finding apart = alike("0: 1795932564.1\n1: 1795932500.1\n2: 1795932564.6\n");
  EXPECT_EQ(apart.severity, Severity::kTrouble);
  EXPECT_EQ(apart.what, "the clock of n3 is 64 s ahead of that of n2");
  EXPECT_NE(apart.mend, "");
  const Finding silent = alike("0: 1795932564.1\n1: what\n7: 1795932564.1\n");
  EXPECT_EQ(silent.severity, Severity::kNote);
  EXPECT_EQ(silent.what, "1 of 3 nodes told their time");
}

TEST(JobChecks, UnlikeVersionsAreToldWithTheirNodes) {
  const Finding unlike = GpuVersionsAlike("0: 580.1 2.28.9\n1: 550.2 2.18.3\n2: 580.1 -\n", kHosts);
  EXPECT_EQ(unlike.severity, Severity::kNote);
  EXPECT_EQ(unlike.what,
            "driver 550.2, NCCL 2.18.3 on n2; driver 580.1, NCCL 2.28.9 on n1; driver 580.1, no "
            "NCCL on n3");
  EXPECT_NE(unlike.why, "");
  EXPECT_NE(unlike.mend, "");
}

}  // namespace
}  // namespace adaptive_train::job_checks_test
