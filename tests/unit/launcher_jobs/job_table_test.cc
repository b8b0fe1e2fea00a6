// The table of jobs to the letter, its parsable forms and its JSON.
#include "launcher/report/job_table.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <ctime>
#include <limits>
#include <nlohmann/json.hpp>

namespace adaptive_train::job_table_test {
namespace {

constexpr double kNow = 1773563415;  // 2026-03-15T08:30:15 UTC

class JobTableTest : public ::testing::Test {
 protected:
  JobTableTest() {
    setenv("TZ", "UTC0", 1);
    tzset();
    ListedJob done = Listed(1, 1234, "pretrain-gpt2-small", JobState::kCompleted);
    done.row.end_time = kNow - 10000 + 90061;
    done.row.exit_code = 0;
    done.row.nodes = {"n1", "n2", "n3", "n4"};
    done.row.ranks = 4;
    done.row.launches = 2;
    done.row.launch_retries = 1;
    done.row.summary = SummaryRecord{1000, 4096000, 3.21456, 3.4, 12345.6, 0.3333, 0.98765, 0.4125,
                                     10,   20,      30,      40,  8,       0.25,   0.375};
    done.launches = {{1, 5, LaunchOutcome::kRetried, "the fence hung"},
                     {2, 6, LaunchOutcome::kOk, ""}};
    ListedJob failed = Listed(2, 1235, "second", JobState::kFailed);
    failed.row.end_time = kNow - 9940;
    failed.row.exit_code = 5;
    failed.row.nodes = {"n1"};
    failed.row.failures = 1;
    failed.failures = {{7, 12, std::nullopt, "n1", FailureKind::kLinkLost, "all_reduce", "rank 2",
                        "reset", "n3", Blamed::kLink}};
    jobs_ = {done, failed, Listed(12, 0, "local", JobState::kRunning),
             Listed(13, 0, "gone", JobState::kLost)};
  }

  static ListedJob Listed(std::int64_t id, std::int64_t slurm_job_id, const std::string& name,
                          JobState state) {
    ListedJob job;
    job.row.id = id;
    job.row.job.cluster = "alpha";
    job.row.job.slurm_job_id = slurm_job_id;
    job.row.job.user = "ann";
    job.row.job.name = name;
    job.row.job.run_dir = "/runs/" + name;
    job.row.job.submit_time = kNow - 10060;
    job.row.job.start_time = kNow - 10000;
    job.row.job.launcher = LauncherProcess{"n1", "", "", 42, 0};
    job.state = state;
    return job;
  }

  std::string Render(std::string_view format, JobTableStyle style = JobTableStyle::kAligned,
                     bool header = true) const {
    const auto columns = ParseJobFormat(format);
    return columns ? RenderJobTable(jobs_, *columns, style, header, kNow)
                   : columns.error().message + "\n";
  }

  std::vector<ListedJob> jobs_;
};

TEST_F(JobTableTest, DefaultTable) {
  EXPECT_EQ(Render(""),
            "JobID       JobName     State ExitCode    Elapsed Nodes  Steps ValLoss Tokens/s\n"
            "-------- ---------- --------- -------- ---------- ----- ------ ------- --------\n"
            "1234     pretrain-+ COMPLETED      0:0 1-01:01:01     4   1000  3.4000    12346\n"
            "1235         second    FAILED      5:0   00:01:00     1\n"
            "L12           local   RUNNING      0:0   02:46:40     0\n"
            "L13            gone      LOST      0:0    Unknown     0\n");
}

TEST_F(JobTableTest, DefaultTableFitsIn80Columns) {
  const std::string table = Render("");
  for (std::size_t begin = 0; begin < table.size(); begin = table.find('\n', begin) + 1) {
    EXPECT_LE(table.find('\n', begin) - begin, 80u);
  }
}

TEST_F(JobTableTest, WidthsAndSides) {
  EXPECT_EQ(Render("jobname%6,JOBID%-5,state%4"),
            "JobNam JobID Stat\n"
            "------ ----- ----\n"
            "pretr+ 1234  COM+\n"
            "second 1235  FAI+\n"
            " local L12   RUN+\n"
            "  gone L13   LOST\n");
  EXPECT_EQ(Render("State%1", JobTableStyle::kAligned, false), "+\n+\n+\n+\n");
}

TEST_F(JobTableTest, ParsableFormsShowAllAtFullLength) {
  EXPECT_EQ(Render("JobID,JobName%3,ValLoss", JobTableStyle::kParsable),
            "JobID|JobName|ValLoss|\n"
            "1234|pretrain-gpt2-small|3.4000|\n"
            "1235|second||\n"
            "L12|local||\n"
            "L13|gone||\n");
  EXPECT_EQ(Render("JobID,End,Start", JobTableStyle::kParsable2),
            "JobID|End|Start\n"
            "1234|2026-03-16T06:44:36|2026-03-15T05:43:35\n"
            "1235|2026-03-15T05:44:35|2026-03-15T05:43:35\n"
            "L12|Unknown|2026-03-15T05:43:35\n"
            "L13|Unknown|2026-03-15T05:43:35\n");
}

TEST_F(JobTableTest, EveryFieldShowsItsOwnValue) {
  jobs_.resize(1);
  jobs_[0].row.job.restart_count = 3;
  jobs_[0].row.run_number = 7;
  jobs_[0].row.failures = 9;
  jobs_[0].row.job.options = "reuse=auto";
  jobs_[0].row.job.adaptive_train_version = "0.1.0";
  EXPECT_EQ(Render("Cluster,User,RunDir,Options,Version,Submit,Restarts,Run,Failures,Launches,"
                   "Retries,NodeList,Ranks",
                   JobTableStyle::kParsable2, false),
            "alpha|ann|/runs/"
            "pretrain-gpt2-small|reuse=auto|0.1.0|2026-03-15T05:42:35|3|7|9|2|1|n1,n2,n3,n4|4\n");
  EXPECT_EQ(
      Render("Loss,Tokens,StepTime,Robustness,MFU,GradBytes,ParamBytes,ActivationBytes,PeakMemory",
             JobTableStyle::kParsable2, false),
      "3.2146|4096000|0.3333|0.9877|0.412|10|20|30|40\n");
  EXPECT_EQ(Render("MicroBatches,Predicted,PlanStep", JobTableStyle::kParsable2, false),
            "8|0.2500|0.3750\n");
}

TEST_F(JobTableTest, AFieldMayBeCutShortWhereThatIsClear) {
  EXPECT_EQ(Render("exit,JOBN", JobTableStyle::kParsable2),
            Render("ExitCode,JobName", JobTableStyle::kParsable2));
  EXPECT_EQ(Render("job"),
            "--format: 'job' may be JobID or JobName; --helpformat lists all fields\n");
  EXPECT_EQ(Render("tokens", JobTableStyle::kParsable2, false).substr(0, 8), "4096000\n");
}

TEST_F(JobTableTest, UnknownFieldsAndWidthsAreRefused) {
  EXPECT_EQ(Render("JobID,vallos"), Render("JobID,ValLoss"));
  EXPECT_EQ(
      Render("JobID,valoss"),
      "--format: there is no field 'valoss'; the nearest is ValLoss, and --helpformat lists all\n");
  EXPECT_EQ(
      Render("Sate"),
      "--format: there is no field 'Sate'; the nearest is State, and --helpformat lists all\n");
  EXPECT_NE(Render("JobID,").find("there is no field ''"), std::string::npos);
  for (const char* text : {"JobID%", "JobID%-", "JobID%0", "JobID%x", "JobID%5x", "JobID%1001",
                           "JobID%--5", "JobID%99999999999999999999"}) {
    EXPECT_EQ(Render(text),
              std::string("--format: '") + text +
                  "' has no width behind %: allowed are 1 to 1000, with - for left-aligned\n");
  }
}

TEST_F(JobTableTest, HelpListsEveryFieldThatFormatTakes) {
  const std::string list = JobFieldList();
  std::istringstream words(list);
  int count = 0;
  for (std::string word; words >> word; ++count) EXPECT_TRUE(ParseJobFormat(word)) << word;
  EXPECT_EQ(count, 38);
}

TEST_F(JobTableTest, StoredTextsCannotSteerTheTerminal) {
  jobs_.resize(1);
  jobs_[0].row.job.name =
      "a\x1B[2Jb\nc\xC2\x9B"
      "d\x7F";
  EXPECT_EQ(Render("JobName%20", JobTableStyle::kParsable2, false), "a?[2Jb?c?d?\n");
}

TEST_F(JobTableTest, WidthsCountCharactersNotBytes) {
  jobs_.resize(1);
  jobs_[0].row.job.name = "\xC3\xA4\xC3\xB6\xC3\xBC";  // three letters, six bytes
  EXPECT_EQ(Render("JobName%4", JobTableStyle::kAligned, false), " \xC3\xA4\xC3\xB6\xC3\xBC\n");
  EXPECT_EQ(Render("JobName%3", JobTableStyle::kAligned, false), "\xC3\xA4\xC3\xB6\xC3\xBC\n");
  EXPECT_EQ(Render("JobName%2", JobTableStyle::kAligned, false), "\xC3\xA4+\n");
}

TEST_F(JobTableTest, NoJobsIsAHeaderOnly) {
  jobs_.clear();
  EXPECT_EQ(Render("JobID,State"), "JobID        State\n-------- ---------\n");
  EXPECT_EQ(RenderJobsJson(jobs_, kNow), "{\n  \"format_version\": 1,\n  \"jobs\": []\n}\n");
}

TEST_F(JobTableTest, JsonHoldsEverything) {
  const auto root = nlohmann::json::parse(RenderJobsJson(jobs_, kNow));
  EXPECT_EQ(root["format_version"], 1);
  ASSERT_EQ(root["jobs"].size(), 4u);
  const auto& done = root["jobs"][0];
  EXPECT_EQ(done["job_id"], "1234");
  EXPECT_EQ(done["slurm_job_id"], 1234);
  EXPECT_EQ(done["state"], "COMPLETED");
  EXPECT_EQ(done["exit_code"], 0);
  EXPECT_EQ(done["elapsed_s"], 90061.0);
  EXPECT_EQ(done["nodes"], (nlohmann::json{"n1", "n2", "n3", "n4"}));
  EXPECT_EQ(done["summary"]["validation_loss"], 3.4);
  EXPECT_EQ(done["summary"]["grad_bytes"], 10);
  EXPECT_EQ(done["launch_retries"], 1);
  EXPECT_EQ(done["launches"][0]["outcome"], "retried");
  EXPECT_EQ(done["launcher"]["pid"], 42);
  const auto& failed = root["jobs"][1];
  EXPECT_EQ(failed["exit_code"], 5);
  EXPECT_TRUE(failed["summary"].is_null());
  EXPECT_EQ(failed["failures"][0]["operation"], "all_reduce");
  EXPECT_TRUE(failed["failures"][0]["rank"].is_null());
  EXPECT_EQ(failed["failures"][0]["step"], 12);
  EXPECT_EQ(failed["failures"][0]["kind"], "link_lost");
  EXPECT_EQ(failed["failures"][0]["peer_host"], "n3");
  EXPECT_EQ(failed["failures"][0]["blamed"], "link");
  EXPECT_EQ(root["jobs"][2]["job_id"], "L12");
  EXPECT_TRUE(root["jobs"][2]["exit_code"].is_null());
  EXPECT_TRUE(root["jobs"][2]["end_time"].is_null());
  EXPECT_TRUE(root["jobs"][3]["elapsed_s"].is_null());
}

TEST_F(JobTableTest, JsonStaysValidWhateverWasStored) {
  jobs_.resize(1);
  jobs_[0].row.job.name = "\xFF\"\n";
  jobs_[0].row.summary->final_loss = std::numeric_limits<double>::infinity();
  const auto root = nlohmann::json::parse(RenderJobsJson(jobs_, kNow));
  EXPECT_EQ(root["jobs"][0]["name"], "\xEF\xBF\xBD\"\n");
  EXPECT_TRUE(root["jobs"][0]["summary"]["final_loss"].is_null());
}

}  // namespace
}  // namespace adaptive_train::job_table_test
