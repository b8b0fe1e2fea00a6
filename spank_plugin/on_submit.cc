// The plugin in sbatch, salloc and srun: a bad option is refused before anything is queued, a good
// one is told to the job.
#include <cstdlib>
#include <new>

#include "core/job_env.h"
#include "spank_plugin/hooks.h"
#include "spank_plugin/options.h"

namespace adaptive_train::plugin {
namespace {

/// Slurm's option callback has no place for a pointer of ours, so what it learns lies here.
struct Submission {
  bool on = false;
  bool bad_environment = false;  // ADAPTIVE_TRAIN_OPTIONS was refused, and said so
  bool handed_to_slurm = false;  // kSlurmOptionVariable was set by us
  JobOptions options;
} submission;

/// Hands ADAPTIVE_TRAIN_OPTIONS to Slurm as its own variable for our option, so that from here on
/// it makes no difference where the option came from: a command line overrides it, and prolog,
/// steps and tasks learn of it.
void TakeEnvironment() {
  const char* text = std::getenv(kJobOptionsVariable);
  if (text == nullptr || *text == '\0') return;
  const auto options = ParseJobOptions(text);
  if (!options) {
    slurm_error("%s: %s", kJobOptionsVariable, options.error().message.c_str());
    submission.bad_environment = true;
  }
  // Slurm repeats a refused value to the terminal; the user's text may not be fit for that.
  const std::string handed = options ? FormatJobOptions(*options) : "refused";
  submission.handed_to_slurm = std::getenv(kSlurmOptionVariable) == nullptr;
  if (setenv(kSlurmOptionVariable, handed.c_str(), 0) != 0) throw std::bad_alloc();
}

}  // namespace

int OnSubmitInit(spank_t spank) {
  TakeEnvironment();
  RegisterOption(spank);
  return 0;
}

int OnSubmitOption(const char* text) {
  if (submission.bad_environment) return -1;
  const auto options = ParseJobOptions(OptionText(text));
  if (!options) {
    slurm_error("--adaptive-train: %s", options.error().message.c_str());
    return -1;
  }
  submission.options = *options;
  submission.on = true;
  return 0;
}

int OnSubmitPostOptions() {
  // Left in place, Slurm's variable would overrule ADAPTIVE_TRAIN_OPTIONS in every srun of the job.
  if (submission.handed_to_slurm) unsetenv(kSlurmOptionVariable);
  if (!submission.on) return 0;
  if (setenv(kJobOptionsVariable, FormatJobOptions(submission.options).c_str(), 1) != 0)
    throw std::bad_alloc();
  return 0;
}

}  // namespace adaptive_train::plugin
