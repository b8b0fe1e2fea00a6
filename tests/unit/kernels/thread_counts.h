// With how many threads tests run the processor's device.
#pragma once

#include <vector>

namespace adaptive_train::kernels {

/// The thread sanitizer does not see the barriers of OpenMP's library, so there the device stays on one thread.
inline std::vector<int> ThreadCounts() {
#if defined(__SANITIZE_THREAD__)
  return {1};
#else
  return {1, 2, 5};
#endif
}

}  // namespace adaptive_train::kernels
