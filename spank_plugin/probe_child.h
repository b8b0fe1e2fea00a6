// How a forked process becomes the probe: without rights or open files, and with limits.
#pragma once

#include <sys/resource.h>
#include <sys/types.h>

#include "spank_plugin/run_probe.h"

namespace adaptive_train::plugin {

/// Everything that the child needs, prepared before the fork: after it only async-signal-safe calls
/// are allowed. Descriptors must be above 3.
struct Launch {
  const char* path;
  char* const* argv;
  char* const* envp;
  int null, output, complaint, failure;
  rlim_t cpu_seconds;
  const ProbeIdentity* run_as;  // nullptr: as the caller
  pid_t parent;                 // its death ends the probe
};

/// What the child writes to Launch::failure before it exits if it could not become the probe.
struct LaunchFailure {
  char step[32];
  int error;  // errno
};

/// Call in the child of a fork. Descriptors 0 to 2 become null, output and complaint; all others
/// are closed.
[[noreturn]] void BecomeProbe(const Launch& launch);

}  // namespace adaptive_train::plugin
