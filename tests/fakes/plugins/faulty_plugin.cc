// A SPANK plugin that fails on demand. Each argument in plugstack.conf is
// HOST:HOOK:CONTEXT:FAILURE. FAILURE is return (-1), throw, abort, or smuggle. The last passes the
// variable SMUGGLED to the prolog as the text of --adaptive-train, bypassing sbatch's check. It
// shows how Slurm handles failing plugins; never installed.
#include <unistd.h>

#include <cstdlib>
#include <stdexcept>
#include <string>
#include <string_view>

extern "C" {
#include <slurm/spank.h>
}

namespace {

std::string_view ContextName() {
  switch (spank_context()) {
    case S_CTX_LOCAL:
      return "local";
    case S_CTX_REMOTE:
      return "remote";
    case S_CTX_ALLOCATOR:
      return "allocator";
    case S_CTX_SLURMD:
      return "slurmd";
    case S_CTX_JOB_SCRIPT:
      return "job_script";
    default:
      return "error";
  }
}

int Smuggle(spank_t spank) {
  const char* text = std::getenv("SMUGGLED");
  if (text == nullptr) return 0;
  return spank_job_control_setenv(spank, "_SLURM_SPANK_OPTION_adaptive_train_adaptive_train", text,
                                  1) == ESPANK_SUCCESS
             ? 0
             : -1;
}

int Fail(spank_t spank, std::string_view failure) {
  if (failure == "throw") throw std::runtime_error("thrown by faulty_plugin");
  if (failure == "abort") std::abort();
  if (failure == "smuggle") return Smuggle(spank);
  return -1;
}

/// Fails if one of the arguments matches this host, hook and context.
int FailIf(const char* hook, spank_t spank, int argc, char** argv) {
  char host[256] = "";
  ::gethostname(host, sizeof host - 1);
  const std::string place = std::string(host) + ":" + hook + ":" + std::string(ContextName()) + ":";
  for (int i = 0; i < argc; ++i) {
    const std::string_view argument = argv[i];
    if (argument.starts_with(place)) return Fail(spank, argument.substr(place.size()));
  }
  return 0;
}

}  // namespace

#pragma GCC visibility push(default)
extern "C" {

extern const char plugin_name[];
extern const char plugin_type[];
extern const unsigned int plugin_version;
extern const unsigned int spank_plugin_version;
SPANK_PLUGIN(faulty_plugin, 1)

int slurm_spank_init(spank_t spank, int argc, char** argv) {
  return FailIf("init", spank, argc, argv);
}
int slurm_spank_init_post_opt(spank_t spank, int argc, char** argv) {
  return FailIf("init_post_opt", spank, argc, argv);
}
int slurm_spank_local_user_init(spank_t spank, int argc, char** argv) {
  return FailIf("local_user_init", spank, argc, argv);
}
int slurm_spank_user_init(spank_t spank, int argc, char** argv) {
  return FailIf("user_init", spank, argc, argv);
}
int slurm_spank_task_init_privileged(spank_t spank, int argc, char** argv) {
  return FailIf("task_init_privileged", spank, argc, argv);
}
int slurm_spank_task_init(spank_t spank, int argc, char** argv) {
  return FailIf("task_init", spank, argc, argv);
}
int slurm_spank_task_post_fork(spank_t spank, int argc, char** argv) {
  return FailIf("task_post_fork", spank, argc, argv);
}
int slurm_spank_task_exit(spank_t spank, int argc, char** argv) {
  return FailIf("task_exit", spank, argc, argv);
}
int slurm_spank_exit(spank_t spank, int argc, char** argv) {
  return FailIf("exit", spank, argc, argv);
}
int slurm_spank_job_prolog(spank_t spank, int argc, char** argv) {
  return FailIf("job_prolog", spank, argc, argv);
}
int slurm_spank_job_epilog(spank_t spank, int argc, char** argv) {
  return FailIf("job_epilog", spank, argc, argv);
}
int slurm_spank_slurmd_exit(spank_t spank, int argc, char** argv) {
  return FailIf("slurmd_exit", spank, argc, argv);
}

}  // extern "C"
#pragma GCC visibility pop
