// The plugin in sbatch, salloc and srun: refuses an invalid option before anything is queued, and
// passes a valid one to the job.
#include <array>
#include <cstdlib>
#include <new>

#include "core/job_env.h"
#include "spank_plugin/command_line.h"
#include "spank_plugin/hooks.h"
#include "spank_plugin/options.h"

namespace adaptive_train::plugin {
namespace {

/// Slurm's option callback takes no pointer of ours, so its results are stored here.
struct Submission {
  bool on = false;
  bool bad_environment = false;   // ADAPTIVE_TRAIN_OPTIONS was refused, with a message
  bool handed_to_slurm = false;   // we have set kSlurmOptionVariable
  std::array<bool, 2> no_kill{};  // we have set kNoKillVariables
  JobOptions options;
} submission;

/// --no-kill for sbatch and salloc. They read them after slurm_spank_init and after the options of a
/// script's lines, but before those of the command line, which override them.
constexpr std::array<const char*, 2> kNoKillVariables = {"SBATCH_NO_KILL", "SALLOC_NO_KILL"};

/// Slurm ends a job that loses a node, unless --no-kill was given at submission. What the user has
/// set stays.
void KeepAllocation() {
  for (std::size_t i = 0; i < kNoKillVariables.size(); ++i) {
    if (std::getenv(kNoKillVariables[i]) != nullptr) continue;
    // Slurm refuses "1".
    if (setenv(kNoKillVariables[i], "set", 1) != 0) throw std::bad_alloc();
    submission.no_kill[i] = true;
  }
}

/// Passes ADAPTIVE_TRAIN_OPTIONS to Slurm as its own variable for our option. From here on the
/// origin of the option makes no difference: a command line overrides it, and prolog, steps and
/// tasks see it.
void TakeEnvironment() {
  const char* text = std::getenv(kJobOptionsVariable);
  if (text == nullptr || *text == '\0') return;
  const auto options = ParseJobOptions(text);
  if (!options) {
    slurm_error("%s: %s", kJobOptionsVariable, options.error().message.c_str());
    submission.bad_environment = true;
  }
  // Slurm prints a refused value to the terminal, for which the user's text may be unsafe.
  const std::string handed = options ? FormatJobOptions(*options) : "refused";
  submission.handed_to_slurm = std::getenv(kSlurmOptionVariable) == nullptr;
  if (setenv(kSlurmOptionVariable, handed.c_str(), 0) != 0) throw std::bad_alloc();
}

}  // namespace

int OnSubmitInit(spank_t spank) {
  TakeEnvironment();
  // The callback of an option on the command line comes too late.
  const bool in_environment = std::getenv(kSlurmOptionVariable) != nullptr;
  if (in_environment || AsksForAdaptiveTrain(OwnArguments())) KeepAllocation();
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
  KeepAllocation();  // in time for an option of a script's lines
  return 0;
}

int OnSubmitPostOptions() {
  // Left in place, Slurm's variable would override ADAPTIVE_TRAIN_OPTIONS in every srun of the job.
  if (submission.handed_to_slurm) unsetenv(kSlurmOptionVariable);
  for (std::size_t i = 0; i < kNoKillVariables.size(); ++i)
    if (submission.no_kill[i]) unsetenv(kNoKillVariables[i]);
  if (!submission.on) return 0;
  if (setenv(kJobOptionsVariable, FormatJobOptions(submission.options).c_str(), 1) != 0)
    throw std::bad_alloc();
  return 0;
}

}  // namespace adaptive_train::plugin
