// What doctor looks at on the host itself: limits, control groups, clock.
#pragma once

#include <sys/resource.h>
#include <sys/timex.h>

#include <string>

#include "launcher/doctor/finding.h"

namespace adaptive_train {

/// The hard limit on open files, to which ranks and launcher raise their own.
Finding CheckOpenFiles(rlim_t most);

/// The hard limit on locked memory, which network cards with RDMA need.
Finding CheckLockedMemory(rlim_t most, bool has_rdma);
/// Whether there is such a card below ROOT/sys.
bool HasRdma(const std::string& root = "");

/// The memory that the control groups of this process leave of the host's, below ROOT.
Finding CheckMemoryGroup(const std::string& root = "");

/// What processor time the control groups of this process leave of the hardware threads that it may
/// run on, below ROOT.
Finding CheckCpuGroup(const std::string& root = "");

/// `state` is what adjtimex(2) returns, `clock` what it fills in.
Finding CheckClock(int state, const timex& clock);

}  // namespace adaptive_train
