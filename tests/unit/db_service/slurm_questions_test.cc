// What Slurm is asked about, and what its answers say.
#include "db/service/slurm_questions.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/seconds.h"

namespace adaptive_train::slurm_questions_test {
namespace {

constexpr std::int64_t kFailed = 1795932535;

/// As Slurm 22.05 prints it.
std::string Node(const std::string& state, std::int64_t booted, const std::string& reason) {
  return "NodeName=n2 Arch=x86_64 CoresPerSocket=1  CPUAlloc=0 CPUTot=8 OS=Linux 6.1 #1 SMP @0  "
         "RealMemory=4000 State=" +
         state + " ThreadsPerCore=1 Partitions=main  BootTime=" + std::to_string(booted) +
         " SlurmdStartTime=1795932540 CfgTRES=cpu=8,mem=4000M ExtSensorsTemp=n/s" + reason + "\n";
}

std::string Outage(const std::string& words) {
  const auto outage = OutageIn(words, kFailed);
  return outage ? std::to_string(static_cast<std::int64_t>(*outage)) : "none";
}

TEST(SlurmQuestions, ANodeThatIsDownSinceTheFailureHadAnOutage) {
  const auto down = [](const std::string& state, std::int64_t since) {
    return Node(state, 1795000000, " Reason=Not responding [slurm@" + std::to_string(since) + "]");
  };
  EXPECT_EQ(Outage(down("DOWN+NOT_RESPONDING", kFailed + 29)), std::to_string(kFailed + 29));
  EXPECT_EQ(Outage(down("DOWN*+DRAIN", kFailed - 300)), std::to_string(kFailed - 300));
  EXPECT_EQ(Outage(down("DOWN", kFailed - 86400)), "none") << "down since yesterday";
  EXPECT_EQ(Outage(down("DOWN", kFailed + 86400)), "none");
  EXPECT_EQ(Outage(down("IDLE+DRAIN", kFailed)), "none") << "drained, and alive";
  EXPECT_EQ(Outage(Node("IDLE+NOT_RESPONDING", 1795000000, "")), "none") << "it may come back";
  EXPECT_EQ(Outage(Node("DOWN", 1795000000, " Reason=no time")), "none");
}

TEST(SlurmQuestions, ANodeThatStartedAgainHadAnOutage) {
  EXPECT_EQ(Outage(Node("IDLE", kFailed + 200, "")), std::to_string(kFailed + 200));
  EXPECT_EQ(Outage(Node("IDLE", kFailed - 5, "")), "none") << "it had just started";
  EXPECT_EQ(Outage(Node("IDLE", kFailed + 7200, "")), "none");
}

TEST(SlurmQuestions, AReasonIsFreeText) {
  const std::string time = std::to_string(kFailed);
  EXPECT_EQ(Outage(Node("IDLE", 1795000000, " Reason=x State=DOWN BootTime=" + time + " [a@9]")),
            "none");
  EXPECT_EQ(Outage(Node("DOWN", 1795000000, " Reason=dimm [a@9] of ann [root@" + time + "]")),
            time);
  for (const char* const more : {"\n   and more [b@7]", " Comment=by [c@8]", " Extra=x@5"})
    EXPECT_EQ(Outage(Node("DOWN", 1795000000, " Reason=dimm [root@" + time + "]" + more)), time);
}

TEST(SlurmQuestions, OtherWordsAreAnError) {
  for (const char* const words :
       {"", "\n", "Node n2 not found", "State=DOWN", " State= Reason=[x@1]", "Reason=x@"}) {
    const auto outage = OutageIn(words, kFailed);
    ASSERT_FALSE(outage) << words;
    EXPECT_EQ(outage.error().message.find('\n'), std::string::npos);
  }
}

std::string Job(const std::string& lines) {
  const auto runs = RunsIn(lines, 12);
  if (!runs) return runs.error().message;
  std::string said;
  for (const SlurmRun& run : *runs)
    said += fmt::format("{}{} {} to {} {}", said.empty() ? "" : ", ", run.user,
                        run.start.value_or(-1), run.end.value_or(-1), run.nodes);
  return said.empty() ? "none" : said;
}

TEST(SlurmQuestions, AJobIsFoundAmongTheTasksOfItsArray) {
  EXPECT_EQ(Job("11|9|1|2|RUNNING|n1\n12|1000|1795932000|1795935600|RUNNING|n[1-3]\n13|9|1|2|"
                "RUNNING|n1\n"),
            "1000 1795932000 to 1795935600 n[1-3]");
  EXPECT_EQ(Job("12|0|1|2|RUNNING|n1"), "0 1 to 2 n1");
  EXPECT_EQ(Job("12|1000|N/A|N/A|PENDING|"), "1000 -1 to -1 ") << "it waits";
  EXPECT_EQ(Job("12|1000|Unknown|Unknown|CANCELLED by 7|None assigned"), "1000 -1 to -1 ");
  EXPECT_EQ(Job("12|1000|5|NONE|RUNNING|n1"), "1000 5 to -1 n1") << "without a limit";
  EXPECT_EQ(Job("12|1000|2026-11-29T10:00:00|7x|FAILED|n1"), "1000 -1 to -1 n1");
  EXPECT_EQ(
      Job("12|9|1|2|RUNNING|n1\n12|7|3|4|REQUEUED|n[2-3]\n12|7|None|5|CANCELLED|None assigned\n"),
      "9 1 to 2 n1, 7 3 to 4 n[2-3], 7 -1 to 5 ")
      << "sacct --duplicates, of a number that was another's before";
  EXPECT_EQ(Job("12|1000|1|2|RUNNING|n1\n12|ann|1|2|RUNNING|n1\n"),
            "Slurm says of it ann|1|2|RUNNING|n1");
  EXPECT_EQ(Job(""), "none");
  EXPECT_EQ(Job("112|1000|1|2|RUNNING|n1\n"), "none");
  for (const char* const user : {"", "-1", "1 ", "ann", "99999999999"})
    EXPECT_THAT(Job("12|" + std::string(user) + "|1|2|RUNNING|n1"),
                ::testing::StartsWith("Slurm says "));
  for (const char* const fields : {"12|1000", "12|1000|1|2|RUNNING", "12|1000|1|2|RUNNING|n1|n2"})
    EXPECT_THAT(Job(fields), ::testing::StartsWith("Slurm says "));
  const auto completing = RunsIn("12|1|1|2|COMPLETING|n1\n", 12);
  EXPECT_TRUE(completing && completing->at(0).completing);
}

TEST(SlurmQuestions, AnAccountIsTextThatItsUserMayHaveChosen) {
  EXPECT_EQ(AccountIn("11|arts\n12|physics\n12|arts\n", 12), "physics");
  EXPECT_EQ(AccountIn("12|(null)\n", 12), "") << "squeue, without accounts";
  EXPECT_EQ(AccountIn("12|\n", 12), "") << "sacct";
  EXPECT_EQ(AccountIn("", 12), "");
  EXPECT_EQ(AccountIn("12|a\x1b[2J\n", 12).find('\x1b'), std::string::npos);
  EXPECT_LE(AccountIn("12|" + std::string(5000, 'a'), 12).size(), 110u);
}

FailureRecord Failure(const std::string& host, Blamed blamed = Blamed::kNode, double ago = 10) {
  FailureRecord failure;
  failure.time = EpochSecondsNow() - ago;
  failure.host = host;
  failure.kind = FailureKind::kNodeSilent;
  failure.blamed = blamed;
  return failure;
}

std::size_t QuestionsOf(const FailureRecord& failure) {
  return QuestionsIn(store_request::Record{1, {1, failure}}).size();
}

TEST(SlurmQuestions, OnlyFailuresThatBlameANodeAreAskedAbout) {
  EXPECT_EQ(QuestionsOf(Failure("n2")), 1u);
  EXPECT_EQ(QuestionsOf(Failure("gpu-07.rack_3.example.org")), 1u);
  EXPECT_EQ(QuestionsOf(Failure("n2", Blamed::kNobody)), 0u);
  EXPECT_EQ(QuestionsOf(Failure("n2", Blamed::kLink)), 0u);
  EXPECT_EQ(QuestionsOf(Failure("n2", Blamed::kNode, 90000)), 0u) << "long ago";
  EXPECT_EQ(QuestionsOf(Failure("n2", Blamed::kNode, -90000)), 0u);
  EXPECT_EQ(QuestionsOf(Failure("n2", Blamed::kNode, std::nan(""))), 0u);
  FailureRecord slow = Failure("n2");
  slow.kind = FailureKind::kSlow;
  EXPECT_EQ(QuestionsOf(slow), 0u);
}

TEST(SlurmQuestions, ANameThatIsNoneIsNotAskedAbout) {
  for (const char* const name :
       {"", "-a", "--all", "n[1-9]", "n1,n2", "n 1", "n1\n", ".", "n=1", "$(id)", "n1;id", "../n1"})
    EXPECT_EQ(QuestionsOf(Failure(name)), 0u) << name;
  EXPECT_EQ(QuestionsOf(Failure(std::string(65, 'n'))), 0u);
}

TEST(SlurmQuestions, ALedgersJobAndFailuresAreAskedAbout) {
  RunLedger run;
  run.job.slurm_job_id = 7;
  run.entries = {{1, Failure("n1")}, {2, PlanRecord{}}, {3, Failure("n2")}};
  const auto questions = QuestionsIn(store_request::TakeIn{run});
  ASSERT_EQ(questions.size(), 3u);
  EXPECT_EQ(std::get<JobQuestion>(questions[0]), (JobQuestion{7, 0}));
  EXPECT_EQ(std::get<NodeQuestion>(questions[2]).node, "n2");
  run.job.slurm_job_id = 0;  // it ran without Slurm
  EXPECT_EQ(QuestionsIn(store_request::TakeIn{run}).size(), 2u);
}

}  // namespace
}  // namespace adaptive_train::slurm_questions_test
