// The plugin in slurmstepd: puts the job's options into the environment of the batch script and
// tasks, whatever --export says.
#include "core/job_env.h"
#include "core/limits.h"
#include "spank_plugin/hooks.h"
#include "spank_plugin/options.h"

namespace adaptive_train::plugin {
namespace {

/// The results of Slurm's option callback for this step, since it takes no pointer of ours.
struct Step {
  bool on = false;
  JobOptions options;
} step;

}  // namespace

int OnTaskInit(spank_t spank) {
  RegisterOption(spank);
  return 0;
}

int OnTaskOption(const char* text) {
  const auto options = ParseJobOptions(OptionText(text));
  if (!options) {
    slurm_error("adaptive-train: this step's option is left out: %s",
                options.error().message.c_str());
    return 0;
  }
  step.options = *options;
  step.on = true;
  return 0;
}

int OnTaskPostOptions(spank_t spank) {
  // With --export=NONE the option itself does not reach the batch script's node, only Slurm's
  // variable for it.
  char text[kMaxOptionBytes + 1];
  if (!step.on && spank_getenv(spank, kSlurmOptionVariable, text, sizeof text) == ESPANK_SUCCESS)
    OnTaskOption(text);
  if (!step.on) return 0;
  const spank_err_t error =
      spank_setenv(spank, kJobOptionsVariable, FormatJobOptions(step.options).c_str(), 1);
  if (error != ESPANK_SUCCESS)
    slurm_error("adaptive-train: cannot set %s for the step: %s", kJobOptionsVariable,
                spank_strerror(error));
  return 0;
}

}  // namespace adaptive_train::plugin
