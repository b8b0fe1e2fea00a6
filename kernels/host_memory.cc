#include "kernels/host_memory.h"

#include <sys/mman.h>
#include <unistd.h>

#include <cstdint>
#include <cstdlib>
#include <cstring>

#include "kernels/allocation_failure.h"

namespace adaptive_train::kernels {
namespace {

constexpr std::size_t kAlignment = 64;
/// The size on x86-64, and on Arm with 4 KiB pages. Where the system's huge pages are larger, it
/// grants none.
constexpr std::size_t kHugePage = std::size_t{2} << 20;

}  // namespace

void* AllocatePages(std::size_t bytes, bool sparse) {
  if (bytes == 0) return nullptr;
  const bool large = bytes >= 2 * kHugePage;
  void* memory = nullptr;
  if (::posix_memalign(&memory, large ? kHugePage : kAlignment, bytes) != 0)
    throw AllocationFailure("work space", bytes);
  // This is only a hint. MADV_NOHUGEPAGE may undo the hint of an earlier owner of the addresses.
  // Only whole huge pages are covered: a tail would take more memory than it uses.
  if (large) {
    ::madvise(memory, bytes / kHugePage * kHugePage, sparse ? MADV_NOHUGEPAGE : MADV_HUGEPAGE);
  }
  return memory;
}

void FreePages(void* memory) noexcept { std::free(memory); }

void ReleasePages(void* memory, std::size_t bytes) {
  static const auto page = static_cast<std::uintptr_t>(::sysconf(_SC_PAGESIZE));
  auto* const begin = static_cast<std::byte*>(memory);
  const auto from = reinterpret_cast<std::uintptr_t>(begin);
  const std::uintptr_t first = (from + page - 1) / page * page;
  const std::uintptr_t last = (from + bytes) / page * page;
  // Private anonymous pages read as 0 after MADV_DONTNEED (madvise(2)), which fails on locked
  // pages.
  if (first >= last ||
      ::madvise(reinterpret_cast<void*>(first), last - first, MADV_DONTNEED) != 0) {
    std::memset(begin, 0, bytes);
    return;
  }
  std::memset(begin, 0, first - from);
  std::memset(reinterpret_cast<void*>(last), 0, from + bytes - last);
}

}  // namespace adaptive_train::kernels
