#include "spank_plugin/options.h"

#include "spank_plugin/hooks.h"

namespace adaptive_train::plugin {
namespace {

constexpr int kOptionalArgument = 2;

/// Slurm calls this each time the option is given; `remote` is set in slurmstepd.
int OptionCallback(int, const char* text, int remote) {
  return remote != 0 ? OnTaskOption(text) : OnSubmitOption(text);
}

/// Slurm's table needs writable text.
char option_name[] = "adaptive-train";
char option_argument[] = "key=value,...";
char option_usage[] =
    "train on this job's nodes with adaptive-train: each node is photographed at allocation. "
    "Keys: reuse=auto|never, spares=N, compress=auto|off, log=info|debug";

spank_option option = {option_name, option_argument, option_usage, kOptionalArgument,
                       0,           OptionCallback};

}  // namespace

void RegisterOption(spank_t spank) {
  const spank_err_t error = spank_option_register(spank, &option);
  if (error != ESPANK_SUCCESS)
    slurm_error("adaptive-train: cannot register --%s: %s", option_name, spank_strerror(error));
}

std::optional<std::string> OptionInJobScript(spank_t spank) {
  char* text = nullptr;
  if (spank_option_getopt(spank, &option, &text) != ESPANK_SUCCESS) return std::nullopt;
  return std::string(OptionText(text));
}

}  // namespace adaptive_train::plugin
