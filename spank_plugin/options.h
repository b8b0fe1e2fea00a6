// The --adaptive-train option as registered with Slurm.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "spank_plugin/slurm_spank.h"

namespace adaptive_train::plugin {

/// Slurm's environment variable that turns our option on in sbatch, salloc and srun.
inline constexpr char kSlurmOptionVariable[] =
    "SLURM_SPANK__SLURM_SPANK_OPTION_adaptive_train_adaptive_train";

/// Registers the option; call from slurm_spank_init in each context that needs it.
void RegisterOption(spank_t spank);

/// The option's text in a prolog or epilog; none if the option is off. May be "(null)", see
/// core/job_env.h.
std::optional<std::string> OptionInJobScript(spank_t spank);

/// An option's argument; Slurm passes NULL if none was given.
inline std::string_view OptionText(const char* text) {
  return text == nullptr ? std::string_view() : text;
}

}  // namespace adaptive_train::plugin
