// Slurm's plugin interface as C++ sees it.
#pragma once

extern "C" {
#include <slurm/spank.h>
}
