#include "kernels/host_memory.h"

#include <sys/mman.h>
#include <unistd.h>

#include <cstdint>
#include <cstring>

namespace adaptive_train::kernels {

void ReleasePages(void* memory, std::size_t bytes) {
  static const auto page = static_cast<std::uintptr_t>(::sysconf(_SC_PAGESIZE));
  auto* const begin = static_cast<std::byte*>(memory);
  const auto from = reinterpret_cast<std::uintptr_t>(begin);
  const std::uintptr_t first = (from + page - 1) / page * page;
  const std::uintptr_t last = (from + bytes) / page * page;
  // Private anonymous pages read as 0 once they are gone (madvise(2), MADV_DONTNEED). Locked ones
  // do not go.
  if (first >= last ||
      ::madvise(reinterpret_cast<void*>(first), last - first, MADV_DONTNEED) != 0) {
    std::memset(begin, 0, bytes);
    return;
  }
  std::memset(begin, 0, first - from);
  std::memset(reinterpret_cast<void*>(last), 0, from + bytes - last);
}

}  // namespace adaptive_train::kernels
