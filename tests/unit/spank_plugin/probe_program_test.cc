// The adaptive-train-probe program: its output, the order of its output, and the effect of GPUs on
// it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

#include "core/cluster.h"
#include "tests/unit/spank_plugin/temporary_folder.h"

namespace adaptive_train::probe_program_test {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

struct Ended {
  std::vector<std::string> lines;  // of standard output
  std::string complaint;           // standard error
  int status = -1;                 // as returned by waitpid; -1: killed after the time limit
};

/// Runs a command of the shell for at most `seconds`.
Ended RunCommand(const std::string& command, double seconds = 30) {
  const TemporaryFolder folder;
  const pid_t pid = ::fork();
  if (pid == 0) {
    const std::string line =
        "exec >" + folder.Path() + "/out 2>" + folder.Path() + "/err; " + command;
    ::execl("/bin/sh", "sh", "-c", line.c_str(), nullptr);
    ::_exit(127);
  }
  Ended ended;
  const auto give_up = std::chrono::steady_clock::now() + std::chrono::duration<double>(seconds);
  while (::waitpid(pid, &ended.status, WNOHANG) == 0) {
    if (std::chrono::steady_clock::now() > give_up) {
      ::kill(pid, SIGKILL);
      ::waitpid(pid, nullptr, 0);
      ended.status = -1;
      break;
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  std::ifstream out(folder.Path() + "/out");
  for (std::string line; std::getline(out, line);) ended.lines.push_back(line);
  std::ifstream err(folder.Path() + "/err");
  ended.complaint = {std::istreambuf_iterator<char>(err), {}};
  return ended;
}

/// Runs the probe with environment settings; `FAKE_NVML=...` adds the fake NVML.
Ended RunProbe(const std::string& settings = "", double seconds = 30) {
  const std::string library = settings.find("FAKE_NVML") == std::string::npos
                                  ? ""
                                  : "LD_LIBRARY_PATH=" FAKE_NVML_FOLDER " ";
  return RunCommand("exec env " + library + settings + " " PROBE_PROGRAM, seconds);
}

/// The documents of a probe that succeeded.
std::vector<Node> NodesOf(const Ended& ended) {
  EXPECT_EQ(ended.status, 0) << ended.complaint;
  EXPECT_EQ(ended.complaint, "");
  std::vector<Node> nodes;
  for (const std::string& line : ended.lines) {
    const auto node = NodeFromJson(line);
    EXPECT_TRUE(node) << node.error().message;
    if (node) nodes.push_back(*node);
  }
  EXPECT_EQ(nodes.size(), 2U);
  nodes.resize(2);
  return nodes;
}

TEST(ProbeProgram, DescribesThisNode) {
  const Node node = NodesOf(RunProbe()).back();
  char host[256] = "";
  ::gethostname(host, sizeof host - 1);
  EXPECT_TRUE(std::string(host).starts_with(node.name)) << node.name;
  EXPECT_EQ(node.source, "user");
  EXPECT_THAT(node.taken_at,
              testing::ContainsRegex(
                  "^20[0-9][0-9]-[01][0-9]-[0-3][0-9]T[0-2][0-9]:[0-5][0-9]:[0-6][0-9]Z$"));
  EXPECT_TRUE(node.processors_status.Ok()) << node.processors_status.status;
  EXPECT_NE(node.processors.model, "");
  EXPECT_GE(node.processors.packages, 1);
  EXPECT_GE(node.processors.threads, node.processors.cores);
  EXPECT_EQ(node.processors.threads, ::sysconf(_SC_NPROCESSORS_ONLN));
  cpu_set_t bound;
  ASSERT_EQ(::sched_getaffinity(0, sizeof bound, &bound), 0);
  EXPECT_EQ(node.processors.allowed_threads, CPU_COUNT(&bound));
  EXPECT_GE(node.processors.allowed_cores, 1);
  EXPECT_TRUE(node.memory_status.Ok());
  EXPECT_EQ(node.memory.total_bytes,
            std::int64_t{::sysconf(_SC_PHYS_PAGES)} * ::sysconf(_SC_PAGESIZE));
  EXPECT_GT(node.memory.available_bytes, 0);
  EXPECT_LE(node.memory.available_bytes, node.memory.total_bytes);
  EXPECT_GT(node.probe_seconds, 0);
}

TEST(ProbeProgram, CountsOnlyWhatItMayRunOn) {
  const std::vector<Node> nodes = NodesOf(RunCommand("exec taskset -c 0 " PROBE_PROGRAM));
  EXPECT_EQ(nodes.back().processors.allowed_threads, 1);
  EXPECT_EQ(nodes.back().processors.allowed_cores, 1);
  EXPECT_EQ(nodes.back().processors.threads, ::sysconf(_SC_NPROCESSORS_ONLN));
}

TEST(ProbeProgram, KnowsWhoRanItAndWhatSlurmCallsTheNode) {
  const Node node =
      NodesOf(RunProbe("SLURM_SCRIPT_CONTEXT=prolog_slurmd SLURMD_NODENAME=n17")).back();
  EXPECT_EQ(node.source, "prolog");
  EXPECT_EQ(node.name, "n17");
}

TEST(ProbeProgram, SaysTheCpuPartBeforeItAsksGpus) {
  const std::vector<Node> nodes = NodesOf(RunProbe("FAKE_NVML=works"));
  EXPECT_EQ(nodes[0].gpus_status.status, "not asked yet");
  EXPECT_TRUE(nodes[0].gpus.empty());
  EXPECT_EQ(nodes[0].processors.threads, nodes[1].processors.threads);
  EXPECT_EQ(nodes[0].nics.size(), nodes[1].nics.size());
  EXPECT_TRUE(nodes[1].gpus_status.Ok()) << nodes[1].gpus_status.status;
}

TEST(ProbeProgram, DescribesGpus) {
  const Node node = NodesOf(RunProbe("FAKE_NVML=works")).back();
  ASSERT_EQ(node.gpus.size(), 2U);
  EXPECT_EQ(node.gpus[1].index, 1);
  EXPECT_EQ(node.gpus[1].model, "Fake H200");
  EXPECT_EQ(node.gpus[1].uuid, "GPU-00000000-0000-0000-0000-000000000001");
  EXPECT_EQ(node.gpus[1].pci, "0000:af:00.0");
  EXPECT_EQ(node.gpus[1].memory_bytes, 150'000'000'000);
  EXPECT_EQ(node.gpus[1].numa_node, -1);
  EXPECT_THAT(node.gpus[1].nvlink_peers, ElementsAre("0000:3b:00.0", "0000:3b:00.0"));
}

TEST(ProbeProgram, ALostGpuIsNamedAndTheOthersStay) {
  const Node node = NodesOf(RunProbe("FAKE_NVML=gpu1")).back();
  ASSERT_EQ(node.gpus.size(), 1U);
  EXPECT_EQ(node.gpus[0].uuid, "GPU-00000000-0000-0000-0000-000000000000");
  EXPECT_EQ(node.gpus_status.status, "GPU 1: GPU is lost");
}

TEST(ProbeProgram, SaysWhyThereAreNoGpus) {
  EXPECT_EQ(NodesOf(RunProbe("FAKE_NVML=start")).back().gpus_status.status,
            "NVML does not start: Unknown\\x0aError");
  EXPECT_EQ(NodesOf(RunProbe("FAKE_NVML=count")).back().gpus_status.status,
            "NVML does not count the GPUs: Unknown\\x0aError");
}

TEST(ProbeProgram, ALibraryThatIsNoNvmlIsNamed) {
  const TemporaryFolder folder;
  folder.Write("libnvidia-ml.so.1", "no library");
  EXPECT_THAT(NodesOf(RunCommand("exec env LD_LIBRARY_PATH=" + folder.Path() + " " PROBE_PROGRAM))
                  .back()
                  .gpus_status.status,
              HasSubstr("NVML cannot be loaded: "));
}

TEST(ProbeProgram, AHangingDriverLeavesTheCpuPart) {
  const Ended ended = RunProbe("FAKE_NVML=hang", 3);
  EXPECT_EQ(ended.status, -1);
  ASSERT_EQ(ended.lines.size(), 1U);
  const auto node = NodeFromJson(ended.lines[0]);
  ASSERT_TRUE(node);
  EXPECT_GE(node->processors.threads, 1);
}

TEST(ProbeProgram, RefusesWhatItDoesNotKnow) {
  for (const char* arguments : {"--json", "x", "--version --json", "''"}) {
    const Ended ended = RunCommand("exec " PROBE_PROGRAM " " + std::string(arguments));
    ASSERT_TRUE(WIFEXITED(ended.status));
    EXPECT_EQ(WEXITSTATUS(ended.status), 2) << arguments;
    EXPECT_TRUE(ended.lines.empty());
    EXPECT_EQ(std::count(ended.complaint.begin(), ended.complaint.end(), '\n'), 1)
        << ended.complaint;
  }
}

TEST(ProbeProgram, TellsItsVersion) {
  const Ended ended = RunCommand("exec " PROBE_PROGRAM " --version");
  EXPECT_EQ(ended.status, 0);
  EXPECT_THAT(ended.lines, ElementsAre("adaptive-train-probe " ADAPTIVE_TRAIN_VERSION));
}

TEST(ProbeProgram, AFullDiskIsAnError) {
  const Ended ended = RunCommand("exec " PROBE_PROGRAM " >/dev/full");
  ASSERT_TRUE(WIFEXITED(ended.status));
  EXPECT_EQ(WEXITSTATUS(ended.status), 1);
  EXPECT_THAT(ended.complaint, HasSubstr("No space left on device"));
}

}  // namespace
}  // namespace adaptive_train::probe_program_test
