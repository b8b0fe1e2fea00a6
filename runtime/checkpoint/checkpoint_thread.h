// How the threads that make checkpoints behave towards the rest of the program.
#pragma once

#include <csignal>

namespace adaptive_train {

/// Threads started in its scope inherit a mask that leaves every signal to the others.
class SignalsLeftToOthers {
 public:
  SignalsLeftToOthers() {
    sigset_t all;
    sigfillset(&all);
    pthread_sigmask(SIG_BLOCK, &all, &before_);
  }
  ~SignalsLeftToOthers() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
  SignalsLeftToOthers(const SignalsLeftToOthers&) = delete;
  SignalsLeftToOthers& operator=(const SignalsLeftToOthers&) = delete;

 private:
  sigset_t before_;
};

/// Makes the calling thread give way to all others that want a processor or the disk. Where the
/// system does not allow it, the thread is as it was.
void GiveWay();

}  // namespace adaptive_train
