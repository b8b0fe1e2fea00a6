// Which rank failed first, by what the members of a group say.
#include "core/member_report.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace adaptive_train::member_report_test {
namespace {

using testing::HasSubstr;

const std::vector<int> kMembers{4, 5, 6, 7};

/// All wait for the same collective until their deadline.
std::vector<MemberReport> AllLate() {
  std::vector<MemberReport> reports;
  for (const int rank : kMembers) {
    MemberReport report;
    report.rank = rank;
    report.version = "2.28.9";
    report.taken = report.collectives = 8;
    report.fault = MemberFault::kLate;
    report.operation = "all-reduce 7 of the data group";
    report.cause = "its work does not end for 900 s";
    reports.push_back(report);
  }
  return reports;
}

int First(const std::vector<MemberReport>& reports) {
  const auto first = FirstToFail(kMembers, reports);
  return first ? first->rank : -1;
}

TEST(FirstToFail, NobodyWhereAllIsWell) {
  auto reports = AllLate();
  for (MemberReport& report : reports) report.fault = MemberFault::kNone;
  EXPECT_EQ(First(reports), -1);
}

TEST(FirstToFail, NobodyWhereAllWaitForEachOther) {
  auto reports = AllLate();
  EXPECT_EQ(First(reports), -1);
  for (MemberReport& report : reports) report.untaken = true;
  EXPECT_EQ(First(reports), -1);
}

TEST(FirstToFail, TheOnlyOneWithAnErrorOfItsOwn) {
  auto reports = AllLate();
  reports[0].fault = MemberFault::kPeer;
  reports[2].fault = MemberFault::kOwn;
  reports[2].cause = "unhandled cuda error";
  EXPECT_EQ(FirstToFail(kMembers, reports)->why,
            "all-reduce 7 of the data group: unhandled cuda error");
  reports[1].fault = MemberFault::kOwn;
  reports[1].taken = 9;
  EXPECT_EQ(First(reports), 6) << "the earlier of two";
}

TEST(FirstToFail, TheOneThatSaysNothing) {
  auto reports = AllLate();
  reports.erase(reports.begin() + 1);
  EXPECT_EQ(First(reports), 5);
  reports[0].fault = MemberFault::kOwn;
  EXPECT_EQ(First(reports), 4) << "it may have ended for that error";
}

TEST(FirstToFail, TheOneThatIsBehind) {
  auto reports = AllLate();
  reports[3].collectives = 7;
  EXPECT_EQ(First(reports), 7);
  EXPECT_THAT(FirstToFail(kMembers, reports)->why, HasSubstr("7 collectives, others in more"));
  reports[1].collectives = 7;
  reports[3].untaken = true;
  EXPECT_EQ(First(reports), 7) << "its library has not taken the next one";
}

TEST(FirstToFail, TheOneForWhichATransferWaits) {
  auto reports = AllLate();
  for (MemberReport& report : reports) report.fault = MemberFault::kNone;
  reports[1].fault = MemberFault::kLate;
  reports[1].peers = {6};
  EXPECT_EQ(First(reports), 6);
  reports[2].fault = MemberFault::kLate;
  reports[2].peers = {5};
  EXPECT_EQ(First(reports), -1) << "they wait for each other";
  reports[2].untaken = true;
  EXPECT_EQ(First(reports), 6);
}

TEST(FirstToFail, TheOneOfAnotherVersion) {
  auto reports = AllLate();
  reports[3].version = "2.21.5";
  EXPECT_THAT(FirstToFail(kMembers, reports)->why, HasSubstr("version 2.21.5"));
  reports[3].version = "";
  reports[3].cause = "NCCL cannot be loaded";
  EXPECT_EQ(FirstToFail(kMembers, reports)->why, "NCCL cannot be loaded");
  // Of member 0, all others say that theirs is not its version.
  reports = AllLate();
  for (MemberReport& report : reports) report.fault = MemberFault::kOwn;
  reports[0].version = "2.21.5";
  EXPECT_EQ(First(reports), 4);
}

}  // namespace
}  // namespace adaptive_train::member_report_test
