#include "runtime/checkpoint/checkpoint_thread.h"

#include <sched.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace adaptive_train {

void GiveWay() {
  // Batch threads do not displace others when they wake up. Nice 19 leaves them about 1.5 % of a
  // contended processor: little enough for a step not to notice, and enough to get on, which
  // SCHED_IDLE would not promise.
  const sched_param parameter{};
  ::sched_setscheduler(0, SCHED_BATCH, &parameter);
  // Linux counts niceness per thread.
  ::setpriority(PRIO_PROCESS, static_cast<id_t>(::gettid()), 19);
  // The numbers of ioprio_set(2): <linux/ioprio.h> cannot be included in C++, as newer ones have a
  // parameter called "class".
  constexpr int kWhoProcess = 1, kBestEffort = 2, kClassShift = 13, kLowest = 7;
  ::syscall(SYS_ioprio_set, kWhoProcess, 0, kBestEffort << kClassShift | kLowest);
}

}  // namespace adaptive_train
