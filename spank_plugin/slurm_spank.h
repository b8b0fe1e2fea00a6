// Slurm's plugin interface for C++.
#pragma once

extern "C" {
#include <slurm/spank.h>
}
