// The symbols that Slurm looks up. Each hook finds out in which of Slurm's processes it runs and
// calls the function in on_*.cc. No exception may escape: one that reaches slurmd's prolog drains
// the node.
#include <exception>
#include <span>

#include "spank_plugin/hooks.h"

namespace {

using namespace adaptive_train::plugin;

std::span<const char* const> Words(int count, char** words) {
  return words == nullptr || count <= 0
             ? std::span<const char* const>()
             : std::span<const char* const>(words, static_cast<std::size_t>(count));
}

/// Runs a hook's body. An exception becomes one line in the log and the result `failed`.
template <class Body>
int Guarded(const char* hook, int failed, Body body) {
  try {
    return body();
  } catch (const std::exception& error) {
    slurm_error("adaptive-train: %s: %s", hook, error.what());
  } catch (...) {
    slurm_error("adaptive-train: %s: unknown exception", hook);
  }
  return failed;
}

bool IsSubmission(spank_context_t context) {
  return context == S_CTX_ALLOCATOR || context == S_CTX_LOCAL;
}

}  // namespace

#pragma GCC visibility push(default)
extern "C" {

// A namespace-scope const has internal linkage in C++ unless it was declared extern before.
extern const char plugin_name[];
extern const char plugin_type[];
extern const unsigned int plugin_version;
extern const unsigned int spank_plugin_version;
SPANK_PLUGIN(adaptive_train, 1)

int slurm_spank_init(spank_t spank, int argc, char** argv) {
  const spank_context_t context = spank_context();
  return Guarded("init", IsSubmission(context) ? -1 : 0, [&] {
    if (IsSubmission(context)) return OnSubmitInit(spank);
    if (context == S_CTX_REMOTE) return OnTaskInit(spank);
    if (context == S_CTX_SLURMD) return OnNodeInit(ParseArguments(Words(argc, argv)));
    return 0;
  });
}

int slurm_spank_init_post_opt(spank_t spank, int, char**) {
  const spank_context_t context = spank_context();
  return Guarded("init_post_opt", IsSubmission(context) ? -1 : 0, [&] {
    if (IsSubmission(context)) return OnSubmitPostOptions();
    if (context == S_CTX_REMOTE) return OnTaskPostOptions(spank);
    return 0;
  });
}

int slurm_spank_job_prolog(spank_t spank, int argc, char** argv) {
  return Guarded("job_prolog", 0,
                 [&] { return OnJobProlog(spank, ParseArguments(Words(argc, argv)).arguments); });
}

int slurm_spank_job_epilog(spank_t spank, int, char**) {
  return Guarded("job_epilog", 0, [&] { return OnJobEpilog(spank); });
}

}  // extern "C"
#pragma GCC visibility pop
