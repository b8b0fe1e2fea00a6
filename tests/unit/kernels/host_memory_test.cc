// Allocation and release of large and small pages.
#include "kernels/host_memory.h"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <span>
#include <string>
#include <vector>

#include "kernels/allocation_failure.h"

namespace adaptive_train::kernels::host_memory_test {
namespace {

struct HostMemoryTest : testing::Test {
  static constexpr std::size_t kPages = 64;

  HostMemoryTest()
      : page(static_cast<std::size_t>(::sysconf(_SC_PAGESIZE))),
        memory(static_cast<unsigned char*>(::mmap(nullptr, kPages * page, PROT_READ | PROT_WRITE,
                                                  MAP_PRIVATE | MAP_ANONYMOUS, -1, 0)),
               kPages * page) {
    ::madvise(memory.data(), memory.size(), MADV_NOHUGEPAGE);
    std::ranges::fill(memory, static_cast<unsigned char>(7));
  }
  ~HostMemoryTest() override { ::munmap(memory.data(), memory.size()); }

  std::size_t PagesThere() const {
    std::vector<unsigned char> there(kPages);
    EXPECT_EQ(::mincore(memory.data(), memory.size(), there.data()), 0);
    return static_cast<std::size_t>(
        std::ranges::count_if(there, [](unsigned char byte) { return (byte & 1) != 0; }));
  }
  /// 0 in [begin, end), 7 everywhere else.
  void ExpectClear(std::size_t begin, std::size_t end) const {
    std::size_t wrong = 0;
    for (std::size_t i = 0; i < memory.size(); ++i)
      wrong += memory[i] != (i >= begin && i < end ? 0 : 7) ? 1 : 0;
    EXPECT_EQ(wrong, 0u) << begin << " to " << end;
  }

  const std::size_t page;
  const std::span<unsigned char> memory;
};

TEST_F(HostMemoryTest, WholePagesLeaveAndEdgesAreCleared) {
  const std::size_t begin = 2 * page + 100, end = 10 * page + 5;
  ReleasePages(memory.data() + begin, end - begin);
  EXPECT_EQ(PagesThere(), kPages - 7);
  ExpectClear(begin, end);
}

TEST_F(HostMemoryTest, LessThanAPageIsCleared) {
  for (const auto& [begin, size] : std::vector<std::pair<std::size_t, std::size_t>>{
           {0, 0}, {page - 3, 6}, {5, 1}, {page + 1, page}, {0, page - 1}}) {
    std::ranges::fill(memory, static_cast<unsigned char>(7));
    ReleasePages(memory.data() + begin, size);
    EXPECT_EQ(PagesThere(), kPages);
    ExpectClear(begin, begin + size);
  }
}

TEST_F(HostMemoryTest, PagesThatMayNotLeaveAreCleared) {
  // Any user may lock 64 kB. Sanitizers make mlock a no-op.
  ASSERT_EQ(::syscall(SYS_mlock, memory.data(), 4 * page), 0);
  ReleasePages(memory.data() + 1, 3 * page);
  EXPECT_EQ(PagesThere(), kPages);
  ExpectClear(1, 3 * page + 1);
}

/// The kernel's flags of the mapping that contains an address: two letters each, see smaps in
/// proc(5).
std::string FlagsAt(const void* address) {
  std::ifstream smaps("/proc/self/smaps");
  const auto at = reinterpret_cast<std::uintptr_t>(address);
  bool inside = false;
  for (std::string line; std::getline(smaps, line);) {
    std::uintptr_t begin = 0, end = 0;
    if (std::sscanf(line.c_str(), "%zx-%zx ", &begin, &end) == 2) inside = begin <= at && at < end;
    if (inside && line.starts_with("VmFlags:")) return line;
  }
  return {};
}

TEST(AllocatePages, AsksForHugePagesThatAreFilled) {
  // A kernel without huge pages refuses to be asked for them.
  const bool known = std::filesystem::exists("/sys/kernel/mm/transparent_hugepage");
  const auto asked = [](const char* at) { return FlagsAt(at).find(" hg") != std::string::npos; };
  constexpr std::size_t kHuge = std::size_t{2} << 20;
  auto* const large = static_cast<char*>(AllocatePages(2 * kHuge + 100, false));
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(large) % kHuge, 0u);
  EXPECT_NE(FlagsAt(large), "");
  EXPECT_EQ(asked(large), known);
  EXPECT_EQ(asked(large + 2 * kHuge - 1), known);
  FreePages(large);
  // Perhaps in the same place.
  auto* const sparse = static_cast<char*>(AllocatePages(2 * kHuge + 100, true));
  EXPECT_NE(FlagsAt(sparse), "");
  EXPECT_FALSE(asked(sparse));
  FreePages(sparse);
}

TEST(AllocatePages, AlignsEverything) {
  EXPECT_EQ(AllocatePages(0, false), nullptr);
  for (const std::size_t bytes : {1u, 63u, 4096u, 3u << 20}) {
    void* const memory = AllocatePages(bytes, false);
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(memory) % 64, 0u);
    FreePages(memory);
  }
}

TEST(AllocatedFor, SaysWhatForAndHowMuchWhereItFails) {
  try {
    AllocatedFor("second moments",
                 []() -> int { throw AllocationFailure("work space", std::size_t{5} << 20); });
    FAIL() << "allocated";
  } catch (const std::bad_alloc& failure) {
    EXPECT_STREQ(failure.what(), "no memory for second moments: 5 MiB");
  }
}

}  // namespace
}  // namespace adaptive_train::kernels::host_memory_test
