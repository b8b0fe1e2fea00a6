// A SPANK plugin that fails where it is told to: plugstack.conf says `faulty_plugin.so HOOK CONTEXT FAILURE`, where
// FAILURE is return (-1), throw or abort. It shows what Slurm makes of a plugin's failures; never installed.
#include <cstdlib>
#include <stdexcept>
#include <string_view>

extern "C" {
#include <slurm/spank.h>
}

namespace {

std::string_view ContextName() {
  switch (spank_context()) {
    case S_CTX_LOCAL: return "local";
    case S_CTX_REMOTE: return "remote";
    case S_CTX_ALLOCATOR: return "allocator";
    case S_CTX_SLURMD: return "slurmd";
    case S_CTX_JOB_SCRIPT: return "job_script";
    default: return "error";
  }
}

int FailIf(std::string_view hook, int argc, char** argv) {
  if (argc != 3 || hook != argv[0] || ContextName() != argv[1]) return 0;
  const std::string_view failure = argv[2];
  if (failure == "throw") throw std::runtime_error("thrown by faulty_plugin");
  if (failure == "abort") std::abort();
  return -1;
}

}  // namespace

#pragma GCC visibility push(default)
extern "C" {

extern const char plugin_name[];
extern const char plugin_type[];
extern const unsigned int plugin_version;
extern const unsigned int spank_plugin_version;
SPANK_PLUGIN(faulty_plugin, 1)

int slurm_spank_init(spank_t, int argc, char** argv) { return FailIf("init", argc, argv); }
int slurm_spank_init_post_opt(spank_t, int argc, char** argv) { return FailIf("init_post_opt", argc, argv); }
int slurm_spank_local_user_init(spank_t, int argc, char** argv) { return FailIf("local_user_init", argc, argv); }
int slurm_spank_user_init(spank_t, int argc, char** argv) { return FailIf("user_init", argc, argv); }
int slurm_spank_task_init_privileged(spank_t, int argc, char** argv) { return FailIf("task_init_privileged", argc, argv); }
int slurm_spank_task_init(spank_t, int argc, char** argv) { return FailIf("task_init", argc, argv); }
int slurm_spank_task_post_fork(spank_t, int argc, char** argv) { return FailIf("task_post_fork", argc, argv); }
int slurm_spank_task_exit(spank_t, int argc, char** argv) { return FailIf("task_exit", argc, argv); }
int slurm_spank_exit(spank_t, int argc, char** argv) { return FailIf("exit", argc, argv); }
int slurm_spank_job_prolog(spank_t, int argc, char** argv) { return FailIf("job_prolog", argc, argv); }
int slurm_spank_job_epilog(spank_t, int argc, char** argv) { return FailIf("job_epilog", argc, argv); }
int slurm_spank_slurmd_exit(spank_t, int argc, char** argv) { return FailIf("slurmd_exit", argc, argv); }

}  // extern "C"
#pragma GCC visibility pop
