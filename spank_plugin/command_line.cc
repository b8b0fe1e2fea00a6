#include "spank_plugin/command_line.h"

#include <algorithm>
#include <array>
#include <fstream>
#include <string_view>

namespace adaptive_train::plugin {
namespace {

constexpr std::string_view kOption = "--adaptive-train";

/// Of sbatch and salloc, Slurm 22.05 to 25.05: options with an argument that may be the next word.
constexpr std::string_view kShortWithArgument = "AaBbcCdDeFGiJLMmnNopqStwx";
constexpr auto kLongWithArgument = std::to_array<std::string_view>({
    "account",
    "acctg-freq",
    "array",
    "batch",
    "bb",
    "bbf",
    "begin",
    "chdir",
    "cluster-constraint",
    "clusters",
    "comment",
    "constraint",
    "container",
    "container-id",
    "core-spec",
    "cores-per-socket",
    "cpu-freq",
    "cpus-per-gpu",
    "cpus-per-task",
    "deadline",
    "delay-boot",
    "dependency",
    "distribution",
    "error",
    "exclude",
    "export",
    "export-file",
    "extra",
    "extra-node-info",
    "gid",
    "gpu-bind",
    "gpu-freq",
    "gpus",
    "gpus-per-node",
    "gpus-per-socket",
    "gpus-per-task",
    "gres",
    "gres-flags",
    "hint",
    "input",
    "job-name",
    "kill-on-invalid-dep",
    "licenses",
    "mail-type",
    "mail-user",
    "mcs-label",
    "mem",
    "mem-bind",
    "mem-per-cpu",
    "mem-per-gpu",
    "mincpus",
    "network",
    "nodefile",
    "nodelist",
    "nodes",
    "ntasks",
    "ntasks-per-core",
    "ntasks-per-gpu",
    "ntasks-per-node",
    "ntasks-per-socket",
    "open-mode",
    "output",
    "partition",
    "power",
    "prefer",
    "priority",
    "profile",
    "qos",
    "reservation",
    "signal",
    "sockets-per-node",
    "switches",
    "thread-spec",
    "threads-per-core",
    "time",
    "time-min",
    "tmp",
    "tres-bind",
    "tres-per-task",
    "uid",
    "wait-all-nodes",
    "wckey",
    "wrap",
});

bool TakesNextWord(std::string_view word) {
  if (word.substr(0, 2) == "--") {
    const auto& names = kLongWithArgument;
    return std::find(names.begin(), names.end(), word.substr(2)) != names.end();
  }
  // Letters without an argument may come before one: -HN 2.
  const auto at = word.find_first_of(kShortWithArgument, 1);
  return at != std::string_view::npos && at + 1 == word.size();
}

}  // namespace

bool AsksForAdaptiveTrain(std::span<const std::string> arguments) {
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    const std::string_view word = arguments[i];
    if (word == "--" || word.size() < 2 || word[0] != '-') return false;
    if (word == kOption || word.substr(0, kOption.size() + 1) == "--adaptive-train=") return true;
    if (TakesNextWord(word)) ++i;
  }
  return false;
}

std::vector<std::string> OwnArguments() {
  std::ifstream file("/proc/self/cmdline", std::ios::binary);
  std::vector<std::string> words;
  for (std::string word; std::getline(file, word, '\0');) words.push_back(word);
  if (!words.empty()) words.erase(words.begin());
  return words;
}

}  // namespace adaptive_train::plugin
