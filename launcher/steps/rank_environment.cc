#include "launcher/steps/rank_environment.h"

#include <algorithm>
#include <string_view>

namespace adaptive_train {
namespace {

constexpr std::string_view kNames[] = {"HOME",
                                       "USER",
                                       "LOGNAME",
                                       "SHELL",
                                       "PATH",
                                       "LANG",
                                       "TZ",
                                       "TMPDIR",
                                       "LD_LIBRARY_PATH",
                                       "LD_PRELOAD",
                                       "MALLOC_ARENA_MAX"};
constexpr std::string_view kPrefixes[] = {"SLURM_", "SLURMD_", "_SLURM_SPANK_", "PMIX_", "LC_",
                                          "UCX_",   "UCS_",    "OMP_",          "GOMP_", "CUDA_",
                                          "NCCL_",  "ASAN_",   "UBSAN_",        "TSAN_", "LSAN_"};

bool Allowed(std::string_view name) {
  if (std::find(std::begin(kNames), std::end(kNames), name) != std::end(kNames)) return true;
  return std::any_of(std::begin(kPrefixes), std::end(kPrefixes), [&](std::string_view prefix) {
    return name.substr(0, prefix.size()) == prefix;
  });
}

}  // namespace

Environment RankEnvironment(const Environment& launcher) {
  Environment environment;
  for (const auto& [name, value] : launcher) {
    if (Allowed(name)) environment[name] = value;
  }
  return environment;
}

}  // namespace adaptive_train
