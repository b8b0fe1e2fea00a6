#include "tests/unit/allocated_bytes.h"

#include <atomic>
#include <cstdlib>
#include <new>

namespace {
std::atomic<std::size_t> allocated = 0;
}  // namespace

void* operator new(std::size_t bytes) {
  allocated += bytes;
  if (void* memory = std::malloc(bytes > 0 ? bytes : 1)) return memory;
  throw std::bad_alloc();
}
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t /*bytes*/) noexcept { std::free(memory); }

namespace adaptive_train {

std::size_t AllocatedBytes() { return allocated; }

}  // namespace adaptive_train
