// The nodes command as typed, on real store files.
#include "launcher/commands/nodes.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <cstdlib>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "core/seconds.h"
#include "db/file_store.h"

namespace adaptive_train::nodes_test {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

struct Outcome {
  int exit_code = -1;
  std::string out, err;
};

class NodesTest : public ::testing::Test {
 protected:
  NodesTest() {
    std::string pattern = (std::filesystem::temp_directory_path() / "nodes-XXXXXX").string();
    if (mkdtemp(pattern.data()) == nullptr) std::abort();
    folder_ = pattern;
    unsetenv("SLURM_JOB_ID");
  }
  ~NodesTest() override {
    std::error_code ignored;  // a leftover folder does not fail the test
    std::filesystem::remove_all(folder_, ignored);
  }

  FileStore Store() const {
    auto store = FileStore::Open(StoreLocation{folder_ / "profiles.db"});
    if (!store) throw std::runtime_error(store.error().message);
    return std::move(*store);
  }

  /// Four nodes, of which n2 is slow and n3 was silent twice.
  void Fill() const {
    FileStore store = Store();
    const double now = EpochSecondsNow();
    const Evidence fresh{2, 0.01, now - 3 * 3600};
    Profile profile;
    for (const char* node : {"n1", "n2", "n3", "n4"})
      profile.devices.push_back(
          {node, "cpu", std::string(node) == "n2" ? 3e11 : 9e11, 1e10, fresh});
    profile.links = {{"n1", "n2", 1e-4, 125e6, fresh}, {"n1", "n1", 1e-6, 5e9, fresh}};
    ASSERT_TRUE(store.SaveMeasurements("alpha", profile));
    JobRecord job;
    job.cluster = "alpha";
    job.uid = NewRunUid();
    const auto id = store.BeginJob(job);
    ASSERT_TRUE(id) << id.error().message;
    FailureRecord failure;
    failure.time = now - 3600;
    failure.host = "n3";
    failure.kind = FailureKind::kNodeSilent;
    failure.blamed = Blamed::kNode;
    for (std::int64_t i = 1; i <= 2; ++i) ASSERT_TRUE(store.Record(*id, {i, failure}));
  }

  Outcome Nodes(const std::string& arguments) const {
    CLI::App app("adaptive-train", "adaptive-train");
    app.require_subcommand(1);
    std::function<int()> chosen;
    AddNodesCommand(app, chosen);
    Outcome outcome;
    try {
      app.parse("nodes --store file:" + (folder_ / "profiles.db").string() + " " + arguments);
    } catch (const CLI::ParseError& error) {
      return {2, "", error.what()};
    }
    testing::internal::CaptureStdout();
    testing::internal::CaptureStderr();
    outcome.exit_code = chosen();
    outcome.out = testing::internal::GetCapturedStdout();
    outcome.err = testing::internal::GetCapturedStderr();
    return outcome;
  }

  std::filesystem::path folder_;
};

TEST_F(NodesTest, TheWorstComeFirstEachWithItsReason) {
  Fill();
  const Outcome outcome = Nodes("");
  ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
  std::istringstream lines(outcome.out);
  std::string line;
  std::getline(lines, line);
  EXPECT_THAT(line, StartsWith("Node  Device  GFLOP/s  Of kind"));
  std::getline(lines, line);
  EXPECT_THAT(line, StartsWith("n2    cpu         300     33 %"));
  EXPECT_THAT(line, HasSubstr("1.00 Gbit/s"));
  EXPECT_THAT(line, HasSubstr("3 hours"));
  EXPECT_THAT(line, HasSubstr("its device gives 300 GFLOP/s, others of its kind (cpu) 900"));
  std::getline(lines, line);
  EXPECT_THAT(line, StartsWith("n3    cpu         900    100 %"));
  EXPECT_THAT(line, HasSubstr("2.0"));
  EXPECT_THAT(line, HasSubstr("silent twice in the last day"));
}

TEST_F(NodesTest, ANodeThatWasMeasuredInSeveralWaysIsAsFastAsInTheFastest) {
  Fill();
  FileStore store = Store();
  Profile profile;
  for (const auto& [node, flops] : {std::pair("n4", 1e11), std::pair("n1", 1e11)})
    profile.devices.push_back({node, "cpu, 1 thread", flops, 1e10, {2, 0.01, EpochSecondsNow()}});
  ASSERT_TRUE(store.SaveMeasurements("alpha", profile));
  const Outcome outcome = Nodes("");
  EXPECT_THAT(outcome.out, StartsWith("Node  Device                    GFLOP/s  Of kind"));
  EXPECT_THAT(outcome.out, HasSubstr("n1    cpu, 1 thread and 1 more      100    100 %"));
  EXPECT_LT(outcome.out.find("\nn2 "), outcome.out.find("\nn1 "));
  EXPECT_THAT(outcome.out, Not(HasSubstr("2 x")));
}

TEST_F(NodesTest, JsonHasTheSameForPrograms) {
  Fill();
  const Outcome outcome = Nodes("--json");
  ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
  const auto json = nlohmann::json::parse(outcome.out);
  EXPECT_EQ(json.at("cluster"), "alpha");
  ASSERT_EQ(json.at("nodes").size(), 4u);
  const auto& worst = json.at("nodes")[0];
  EXPECT_EQ(worst.at("node"), "n2");
  EXPECT_EQ(worst.at("devices")[0].at("product_flops"), 3e11);
  EXPECT_NEAR(worst.at("devices")[0].at("of_kind").get<double>(), 1.0 / 3, 1e-12);
  EXPECT_EQ(worst.at("bytes_per_second"), 125e6);
  EXPECT_THAT(json.at("nodes")[1].at("failures").get<std::string>(), HasSubstr("silent twice"));
  EXPECT_EQ(json.at("nodes")[3].at("why_spare"), "");
  EXPECT_FALSE(json.at("nodes")[3].contains("bytes_per_second") &&
               json.at("nodes")[3].at("node") != "n1");
}

TEST_F(NodesTest, OnlyTheNodesThatAreNamed) {
  Fill();
  const Outcome outcome = Nodes("n4 n3");
  ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_EQ(std::count(outcome.out.begin(), outcome.out.end(), '\n'), 3);
  const Outcome unknown = Nodes("n4 n9");
  EXPECT_EQ(unknown.exit_code, 2);
  EXPECT_THAT(unknown.err, HasSubstr("nothing is stored of node n9"));
}

TEST_F(NodesTest, NothingStoredIsOneLineAndNoFile) {
  const Outcome outcome = Nodes("");
  EXPECT_EQ(outcome.exit_code, 2);
  EXPECT_THAT(outcome.err, HasSubstr("nothing is stored of any node yet"));
  EXPECT_FALSE(std::filesystem::exists(folder_ / "profiles.db"));
  Fill();
  EXPECT_THAT(Nodes("--cluster beta").err, HasSubstr("nothing is stored of beta"));
}

}  // namespace
}  // namespace adaptive_train::nodes_test
