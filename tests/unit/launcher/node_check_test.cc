// What one node says of itself and of the shared paths.
#include "launcher/nodes/node_check.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "tests/unit/odd_documents.h"

namespace adaptive_train::node_check_test {
namespace {

using testing::HasSubstr;
using testing::IsEmpty;

class NodeCheckTest : public testing::Test {
 protected:
  void SetUp() override {
    std::string pattern =
        (std::filesystem::temp_directory_path() / "node_check_test.XXXXXX").string();
    ASSERT_NE(::mkdtemp(pattern.data()), nullptr);
    folder_ = pattern;
    std::filesystem::create_directories(folder_ + "/run/logs");
    std::ofstream(folder_ + "/run/.adaptive-train-shared") << "token";
    Node node;
    node.name = "n9";
    node.memory.total_bytes = 5;
    Script("printf 'half of a docu\\n'; cat <<'END'\n" + ToJson(node) + "\nEND");
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }
  void Script(const std::string& body) {
    std::ofstream(folder_ + "/probe") << "#!/bin/sh\n" << body << "\n";
    ::chmod((folder_ + "/probe").c_str(), 0755);
  }
  NodeCheck Check(const std::string& token = "token", std::vector<std::string> readable = {},
                  std::int64_t job = 0) {
    NodeCheckRequest request;
    request.job_id = job;
    request.run_dir = folder_ + "/run";
    request.token = token;
    request.readable = std::move(readable);
    return CheckThisNode(request, folder_ + "/probe");
  }
  std::string folder_;
};

TEST_F(NodeCheckTest, TakesTheProbesLastWholeDocument) {
  const NodeCheck check = Check();
  EXPECT_THAT(check.trouble, IsEmpty());
  EXPECT_EQ(check.node.source, "user");
  EXPECT_EQ(check.node.memory.total_bytes, 5);
}

TEST_F(NodeCheckTest, TheControlGroupsLimitIsReadHereAndSurvivesTheWay) {
  std::filesystem::create_directories(folder_ + "/proc/self");
  std::filesystem::create_directories(folder_ + "/sys/fs/cgroup/job_7");
  std::ofstream(folder_ + "/proc/self/mountinfo")
      << "30 23 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n";
  std::ofstream(folder_ + "/proc/self/cgroup") << "0::/job_7\n";
  std::ofstream(folder_ + "/sys/fs/cgroup/job_7/memory.max") << "3\n";
  ::setenv("SLURM_GPUS_ON_NODE", "2", 1);
  const auto back = NodeCheckFromJson(ToJson(CheckThisNode({}, folder_ + "/probe", folder_)));
  ::unsetenv("SLURM_GPUS_ON_NODE");
  ASSERT_TRUE(back) << back.error().message;
  EXPECT_EQ(back->job_gpus, 2);
  EXPECT_EQ(UsableMemory(back->node.memory).bytes, 3);
  EXPECT_EQ(UsableMemory(back->node.memory).by, "control group /job_7");
}

TEST_F(NodeCheckTest, CountsTheProcessorsThatTheJobMayUse) {
  Node node;
  node.name = "n9";
  node.processors.allowed_cores = 4;
  node.processors.allowed_threads = 8;
  Script("cat <<'END'\n" + ToJson(node) + "\nEND");
  const auto counts = [&](const std::string& list) {
    std::filesystem::create_directories(folder_ + "/proc/self");
    std::ofstream(folder_ + "/proc/self/status")
        << "Name:\tx\nCpus_allowed_list:\t" << list << "\n";
    const Processors found = CheckThisNode({}, folder_ + "/probe", folder_).node.processors;
    return std::pair(found.allowed_cores, found.allowed_threads);
  };
  for (const auto& [cpu, siblings] : {std::pair(0, "0,4"), {4, "0,4"}, {1, "1,5"}}) {
    const std::string topology =
        folder_ + "/sys/devices/system/cpu/cpu" + std::to_string(cpu) + "/topology";
    std::filesystem::create_directories(topology);
    std::ofstream(topology + "/thread_siblings_list") << siblings << "\n";
  }
  EXPECT_EQ(counts("0-1,4"), std::pair(2, 3)) << "two threads of one core, and one of another";
  EXPECT_EQ(counts("2"), std::pair(1, 1)) << "nothing is known of its core";
  EXPECT_EQ(counts("0-63"), std::pair(4, 8)) << "not more than the probe found";
  EXPECT_EQ(counts("what"), std::pair(4, 8));
}

TEST_F(NodeCheckTest, KeepsTheJobsGpusOfThoseThatTheProbeSaw) {
  Node node;
  node.name = "n9";
  for (int i = 0; i < 4; ++i) node.gpus.emplace_back().index = i;
  Script("cat <<'END'\n" + ToJson(node) + "\nEND");
  EXPECT_EQ(Check().node.gpus.size(), 4U);
  EXPECT_EQ(Check("token", {}, 7).node.gpus.size(), 0U) << "a job that asked Slurm for none";
  ::setenv("SLURM_STEP_GPUS", "1,3", 1);
  const std::vector<Gpu> kept = Check().node.gpus;
  ::unsetenv("SLURM_STEP_GPUS");
  ASSERT_EQ(kept.size(), 2U);
  EXPECT_EQ(kept[0].index, 1);
  EXPECT_EQ(kept[1].index, 3);
}

TEST_F(NodeCheckTest, SurvivesTheWayToTheLauncherInShortLines) {
  NodeCheck check = Check();
  check.note = std::string(5000, 'x');
  const std::string text = ToJson(check);
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) EXPECT_LT(line.size(), 1000u);
  auto back = NodeCheckFromJson(text);
  ASSERT_TRUE(back) << back.error().message;
  EXPECT_EQ(back->node.name, check.node.name);
}

TEST_F(NodeCheckTest, FindsAFolderThatIsNotShared) {
  ASSERT_EQ(Check("other").trouble.size(), 1u);
  EXPECT_THAT(Check("other").trouble[0], HasSubstr("run folder not shared"));
  std::filesystem::remove(folder_ + "/run/.adaptive-train-shared");
  EXPECT_THAT(Check().trouble[0], HasSubstr("run folder not shared"));
}

TEST_F(NodeCheckTest, FindsDataThatCannotBeRead) {
  EXPECT_THAT(Check("token", {folder_ + "/none"}).trouble[0], HasSubstr("data not readable"));
  EXPECT_THAT(Check("token", {folder_ + "/probe"}).trouble, IsEmpty());
}

TEST_F(NodeCheckTest, AProbeThatFailsIsTroubleInOneLine) {
  for (const char* body : {"exit 3", "echo garbage", "kill -9 $$", "yes | head -c 9000000"}) {
    Script(body);
    const NodeCheck check = Check();
    ASSERT_EQ(check.trouble.size(), 1u) << body;
    EXPECT_THAT(check.trouble[0], HasSubstr("no snapshot"));
    EXPECT_EQ(check.trouble[0].find('\n'), std::string::npos);
    EXPECT_TRUE(NodeCheckFromJson(ToJson(check)));
  }
}

TEST(NodeCheckJson, OddAnswersAreRefusedInOneLine) {
  NodeCheck check;
  check.node.name = "n9";
  check.note = "probed as the user";
  ExpectOddDocumentsRefused(ToJson(check), NodeCheckFromJson);
  check.trouble = {"data not readable"};
  ExpectOddDocumentsRefused(ToJson(check), NodeCheckFromJson);
}

}  // namespace
}  // namespace adaptive_train::node_check_test
