// What Slurm says of jobs and nodes that users name: a service that finds Slurm's programs in a
// test's folder.

#include <fmt/ranges.h>

#include <fstream>
#include <thread>

#include "core/seconds.h"
#include "db/database.h"
#include "tests/unit/db_service/service_fixture.h"

namespace adaptive_train::slurms_word_test {
namespace {

using ::testing::HasSubstr;

/// Slurm's programs, as the service finds them by PATH: jobs 1 to 3 are Ann's, Bob's and one of
/// 61003, on n1 and n2; job 4 is Ann's as well, on n3. Job 6 of 61003 is known to sacct alone.
class SlurmTest : public ServiceTest {
 protected:
  SlurmTest() {
    asks_slurm_ = true;
    // line JOB UID NODES ACCOUNT [START [END]]: what is asked for of these.
    const std::string line = R"sh(
case "$*" in
  *%a* | *Account*) line() { echo "$1|$4"; } ;;
  *) line() { echo "$1|$2|$(date "+$SLURM_TIME_FORMAT" -d "${5-now}")|${6-NONE}|${7-RUNNING}|$3"; } ;;
esac
)sh";
    WriteProgram("squeue", "echo \"$*\" >>" + (folder_ / "asked").string() + line + R"(
case "$*" in
  *--jobs=1\ *) line 1 61001 'n[1-2]' physics ;;
  *--jobs=2\ *) line 5 61002 n7 arts && line 2 61002 'n[1-2]' arts ;;
  *--jobs=3\ *) line 3 61003 'n[1-2]' '(null)' ;;
  *--jobs=4\ *) line 4 61001 n3 physics ;;
  *--jobs=7\ *) line 7 61003 'n[1-2]' arts '2 days ago' $(date +%s -d yesterday) ;;
  *) exit 1 ;;
esac)");
    WriteProgram("sacct", line + R"(
case "$*" in
  *--jobs=6\ *) line 6 61003 'n[1-2]' arts ;;
  *--jobs=8\ *Account*) line 8 61003 '' arts ;;
  *--jobs=8\ *--duplicates*) line 8 61002 n3 physics '3 days ago' 9
    line 8 61003 'n[1-2]' arts '1 hour ago' $(date +%s) && line 8 61003 'None assigned' arts ;;
  *--jobs=8\ *) line 8 61003 'None assigned' arts ;;
  *) exit 1 ;;
esac)");
    WriteProgram("scontrol", R"(case "$*" in
  'show config') printf 'AccountingStorageType = none\nClusterName             = alpha\n' ;;
  'show hostnames n[1-2]') printf 'n1\nn2\n' ;;
  'show hostnames n3') echo n3 ;;
  '--oneliner show node n1') [ ! -e "$0.n1_is_down" ] ||
    echo "NodeName=n1 State=DOWN+NOT_RESPONDING BootTime=1 Reason=Not responding [slurm@$(date +$SLURM_TIME_FORMAT)]" ;;
  *) exit 1 ;;
esac)");
    path_ = std::getenv("PATH");
    ::setenv("PATH", ((folder_ / "bin").string() + ":" + path_).c_str(), 1);
  }
  ~SlurmTest() override { ::setenv("PATH", path_.c_str(), 1); }

  void WriteProgram(const std::string& name, const std::string& body) {
    std::filesystem::create_directories(folder_ / "bin");
    std::ofstream(folder_ / "bin" / name) << "#!/bin/sh\n" << body << "\n";
    std::filesystem::permissions(folder_ / "bin" / name, std::filesystem::perms(0755));
  }

  /// The user begins a Slurm job and reports a link between n1 and n2 and a failure of n1.
  std::string Report(uid_t uid, std::int64_t job_id) const {
    return As(uid, [&](RemoteStore& store) -> std::string {
      JobRecord job = SampleJob();
      job.slurm_job_id = job_id;
      job.start_time = EpochSecondsNow();
      job.account = "said";
      job.uid = NewRunUid();
      const auto id = store.BeginJob(job);
      if (!id) return id.error().message;
      Profile profile;
      profile.links = {{"n1", "n2", 1e-4, 1e9, {1, 0.05, EpochSecondsNow()}}};
      FailureRecord failure;
      failure.time = EpochSecondsNow();
      failure.host = "n1";
      failure.kind = FailureKind::kNodeSilent;
      failure.blamed = Blamed::kNode;
      for (const NumberedEntry& entry :
           {NumberedEntry{1, MeasuredRecord{"alpha", profile}}, NumberedEntry{2, failure}})
        if (const auto done = store.Record(*id, entry); !done) return done.error().message;
      return "reported";
    });
  }

  /// Of the jobs that the user sees.
  std::string AccountsOf(uid_t uid) const {
    return As(uid, [](RemoteStore& store) -> std::string {
      const auto rows = store.FindJobs(EveryJob());
      if (!rows) return rows.error().message;
      std::string accounts;
      for (const JobRow& row : *rows) accounts += (accounts.empty() ? "" : " ") + row.job.account;
      return accounts;
    });
  }

  void AwaitAccounts(uid_t uid, const std::string& accounts) const {
    for (int i = 0; i < 600 && AccountsOf(uid) != accounts; ++i)
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
    EXPECT_EQ(AccountsOf(uid), accounts);
  }

  std::int64_t PresenceRows() const {
    Database database(Location().path.string());
    return database.Number("SELECT count(*) FROM presence");
  }
  void AwaitPresence(std::int64_t rows) const {
    for (int i = 0; i < 600 && PresenceRows() < rows; ++i)
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
    EXPECT_EQ(PresenceRows(), rows);
  }

  /// squeue has been called so often.
  void AwaitQuestions(std::size_t count) const {
    const auto asked = [&] {
      const std::string lines = BytesOf(folder_ / "asked");
      return static_cast<std::size_t>(std::count(lines.begin(), lines.end(), '\n'));
    };
    for (int i = 0; i < 600 && asked() < count; ++i)
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
    EXPECT_GE(asked(), count);
    std::this_thread::sleep_for(std::chrono::milliseconds(200));  // and what follows from the last
  }

  /// "links 1 known, failed 3": what a user without a job is told.
  std::string Told() const {
    return As(61009, [](RemoteStore& store) -> std::string {
      const auto profile = store.ProfileOf({"alpha", {"n1", "n2"}, {}, "", EpochSecondsNow()});
      if (!profile) return profile.error().message;
      std::string told = "links " + std::to_string(profile->links.size());
      for (const auto& link : profile->links)
        told += " " + std::string(NameOf(link.evidence.trust));
      return told + ", failed nodes " + std::to_string(profile->nodes.size());
    });
  }

  std::string path_;
};

TEST_F(SlurmTest, WhatCountsForOthersIsOfUsersWhoseJobsSlurmHasSeenThere) {
  Start();
  ASSERT_EQ(Report(kAnn, 1), "reported");
  ASSERT_EQ(Report(kBob, 2), "reported");
  AwaitPresence(4);
  EXPECT_EQ(Told(), "links 1 unconfirmed, failed nodes 0");
  // He names Ann's job, one that there is not, and his own elsewhere: all of no use.
  ASSERT_EQ(Report(61004, 1), "reported");
  ASSERT_EQ(Report(61004, 99), "reported");
  ASSERT_EQ(Report(kAnn, 4), "reported");
  AwaitPresence(5);
  EXPECT_EQ(Told(), "links 1 unconfirmed, failed nodes 0");
  EXPECT_EQ(
      As(61004,
         [](RemoteStore& store) {
           const auto profile = store.ProfileOf({"alpha", {"n1", "n2"}, {}, "", EpochSecondsNow()});
           return profile ? std::to_string(profile->nodes.size()) : profile.error().message;
         }),
      "1")
      << "for himself his own reports count";
  ASSERT_EQ(Report(61003, 3), "reported");
  AwaitPresence(7);
  EXPECT_EQ(Told(), "links 1 known, failed nodes 1");
}

TEST_F(SlurmTest, WhatIsReportedOfAnotherTimeThanThatOfHisJobsThereCountsForHimAlone) {
  Start();
  ASSERT_EQ(Report(kAnn, 1), "reported");
  ASSERT_EQ(Report(kBob, 2), "reported");
  ASSERT_EQ(Report(61003, 7), "reported") << "his job ended yesterday";
  AwaitPresence(6);
  EXPECT_EQ(Told(), "links 1 unconfirmed, failed nodes 0");
  ASSERT_EQ(Report(61003, 3), "reported") << "one that runs now";
  for (int i = 0; i < 600 && Told() != "links 1 known, failed nodes 1"; ++i)
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  EXPECT_EQ(Told(), "links 1 known, failed nodes 1");
}

TEST_F(SlurmTest, AJobThatSlurmctldHasForgottenIsKnownToAccounting) {
  Start();
  ASSERT_EQ(Report(61003, 6), "reported");
  AwaitPresence(2);
  EXPECT_EQ(AccountsOf(61003), "arts");
}

TEST_F(SlurmTest, AboutJobsThatRunAServiceThatStartsAgainAsksAgain) {
  Start();
  ASSERT_EQ(Report(kAnn, 1), "reported");
  AwaitPresence(2);
  End(SIGKILL);
  { Database(Location().path.string()).Run("DELETE FROM presence"); }
  Start();
  AwaitPresence(2);
}

TEST_F(SlurmTest, WhereARequeuedJobRanCountsThatWasCancelledAsItWaited) {
  Start();
  ASSERT_EQ(Report(61003, 8), "reported");
  AwaitPresence(2);
  EXPECT_EQ(AccountsOf(61003), "arts");
  ASSERT_EQ(Report(kBob, 8), "reported") << "whose number it was before";
  AwaitPresence(3);
  EXPECT_EQ(AccountsOf(kBob), "");
}

TEST_F(SlurmTest, SlurmSaysWhichAccountAJobIsChargedTo) {
  Start({"--coordinators", "physics:" + std::to_string(kBob) + ",said:61005"});
  ASSERT_EQ(Report(61003, 3), "reported");
  ASSERT_EQ(Report(61004, 1), "reported") << "it is not his";
  ASSERT_EQ(Report(kAnn, 1), "reported");
  AwaitAccounts(kAnn, "physics");
  ASSERT_EQ(Report(kAnn, 1), "reported") << "another run in the same job";
  AwaitAccounts(kAnn, "physics physics");
  EXPECT_EQ(AccountsOf(kBob), "physics physics") << "which he may see";
  EXPECT_EQ(AccountsOf(61003), "") << "Slurm knows of none";
  EXPECT_EQ(AccountsOf(61004), "");
  EXPECT_EQ(AccountsOf(61005), "") << "what a job says itself does not count";
  const std::string asked = BytesOf(folder_ / "asked");
  EXPECT_EQ(std::count(asked.begin(), asked.end(), '\n'), 5)
      << "of each job, and for its user the account";
}

TEST_F(SlurmTest, NobodyElseIsToldOfAClusterThatSlurmDoesNotKnow) {
  Start();
  const auto clusters = [](RemoteStore& store) -> std::string {
    const auto known = store.MeasuredClusters();
    return known ? fmt::format("{}", fmt::join(*known, " ")) : known.error().message;
  };
  ASSERT_EQ(Report(kAnn, 1), "reported");
  AwaitPresence(2);
  ASSERT_EQ(As(61004,
               [](RemoteStore& store) {
                 Profile profile;
                 profile.links = {{"n1", "n2", 1e-4, 1e9, {1, 0.05, EpochSecondsNow()}}};
                 const auto saved = store.SaveMeasurements("invented", profile);
                 return saved ? "saved" : saved.error().message;
               }),
            "saved");
  EXPECT_EQ(As(kBob, clusters), "alpha");
  EXPECT_EQ(As(61004, clusters), "alpha invented");
}

TEST_F(SlurmTest, ANodeThatIsDownBySlurmsWordCountsForAll) {
  std::ofstream(folder_ / "bin" / "scontrol.n1_is_down");
  Start();
  // Of somebody who was never there, and of a job that is not his, nothing comes.
  ASSERT_EQ(Report(61004, 1), "reported");
  AwaitQuestions(1);
  EXPECT_THAT(Told(), HasSubstr("failed nodes 0"));
  ASSERT_EQ(Report(kAnn, 1), "reported");
  for (int i = 0; i < 600 && Told().ends_with(" 0"); ++i)
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  EXPECT_THAT(Told(), HasSubstr("failed nodes 1"));
  const auto described = [](RemoteStore& store) {
    const auto profile = store.ProfileOf({"alpha", {"n1", "n2"}, {}, "", EpochSecondsNow()});
    return profile ? Describe(profile->nodes.at(0)) : profile.error().message;
  };
  EXPECT_EQ(As(61009, described), "n1: down by Slurm's word once in the last day");
  EXPECT_EQ(As(kAnn, described), "n1: silent once in the last day") << "one failure, told twice";
}

TEST_F(SlurmTest, ASlurmThatDoesNotAnswerHoldsUpNobody) {
  WriteProgram("scontrol", "exec sleep 60");
  Start();
  const auto began = std::chrono::steady_clock::now();
  for (int i = 0; i < 5; ++i) ASSERT_EQ(Report(kAnn, 1 + i), "reported");
  EXPECT_LT(std::chrono::steady_clock::now() - began, std::chrono::seconds(20));
  EXPECT_EQ(Told(), "links 0, failed nodes 0");
  const auto ending = std::chrono::steady_clock::now();
  EXPECT_EQ(End(SIGTERM), 0);
  EXPECT_LT(std::chrono::steady_clock::now() - ending, std::chrono::seconds(30));
}

}  // namespace
}  // namespace adaptive_train::slurms_word_test
