// Makes the n-th system call that changes the file system fail, or be the last thing its process
// does. For programs linked with --wrap for each of these calls.
#pragma once

namespace adaptive_train::system_calls {

enum class Fate {
  kHappen,      // the call is made; all are counted
  kKillBefore,  // the process is killed before the n-th call
  kKillAmid,    // the same, but a write has written half
  kNoSpace,     // the n-th call fails with ENOSPC
  kIoError,     // the n-th call and all after it fail with EIO
};

/// From now on: the n-th call, counted from 1, has this fate.
void Arrange(Fate fate, int n);
/// Calls since Arrange.
int Count();

}  // namespace adaptive_train::system_calls
