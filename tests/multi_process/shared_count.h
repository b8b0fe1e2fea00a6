// A barrier for forked ranks, independent of the code under test.
#pragma once

#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <new>

namespace adaptive_train {

/// A count shared by all ranks that are forked after its construction. A rank that waits here stays
/// alive until the others have received its messages. If it left earlier, it would be another
/// rank's lost peer.
class SharedCount {
 public:
  SharedCount()
      : count_(new (::mmap(nullptr, sizeof *count_, PROT_READ | PROT_WRITE,
                           MAP_SHARED | MAP_ANONYMOUS, -1, 0)) std::atomic<int>(0)) {}
  ~SharedCount() { ::munmap(count_, sizeof *count_); }
  SharedCount(const SharedCount&) = delete;
  SharedCount& operator=(const SharedCount&) = delete;

  /// Waits until `all` have arrived, once for each count. The rank's alarm ends a wait that fails.
  void Meet(int all) {
    ++*count_;
    while (*count_ < all) ::usleep(1000);
  }

 private:
  std::atomic<int>* count_;
};

}  // namespace adaptive_train
