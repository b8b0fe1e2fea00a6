// A place where forked ranks wait for each other, apart from what they test.
#pragma once

#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <new>

namespace adaptive_train {

/// A count that all ranks share which are forked after it. A rank that waits here for the others
/// neither leaves, which would make it another one's lost peer, nor dies, before the others have
/// received what it sent them.
class SharedCount {
 public:
  SharedCount()
      : count_(new (::mmap(nullptr, sizeof *count_, PROT_READ | PROT_WRITE,
                           MAP_SHARED | MAP_ANONYMOUS, -1, 0)) std::atomic<int>(0)) {}
  ~SharedCount() { ::munmap(count_, sizeof *count_); }
  SharedCount(const SharedCount&) = delete;
  SharedCount& operator=(const SharedCount&) = delete;

  /// Waits until `all` have come here, once for each count. The rank's alarm ends a wait in vain.
  void Meet(int all) {
    ++*count_;
    while (*count_ < all) ::usleep(1000);
  }

 private:
  std::atomic<int>* count_;
};

}  // namespace adaptive_train
