// A SPANK plugin whose prolog and epilog do nothing: what Slurm itself spends on any plugin that
// has these hooks. For tests/bench/idle_cost; never installed.
extern "C" {
#include <slurm/spank.h>
}

#pragma GCC visibility push(default)
extern "C" {

extern const char plugin_name[];
extern const char plugin_type[];
extern const unsigned int plugin_version;
extern const unsigned int spank_plugin_version;
SPANK_PLUGIN(empty_plugin, 1)

int slurm_spank_job_prolog(spank_t, int, char**) { return 0; }
int slurm_spank_job_epilog(spank_t, int, char**) { return 0; }
}
