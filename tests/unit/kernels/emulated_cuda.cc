// A block's threads as fibers. They are entered by makecontext and switched by _setjmp and _longjmp:
// swapcontext would make a system call each time.
#include <setjmp.h>
#include <sys/mman.h>
#include <ucontext.h>
#include <unistd.h>

#include <cstdio>
#include <map>
#include <memory>
#include <vector>

#include "cuda_runtime.h"
#include "tests/unit/kernels/tested_device.h"

namespace emulated_cuda {
namespace {

constexpr unsigned kLanes = 32;
constexpr std::size_t kStack = std::size_t{256} << 10;

enum class State : std::uint8_t { kReady, kAtBarrier, kInWarp, kEnded };

struct Fiber {
  State state = State::kReady;
  bool entered = false;
  unsigned mask = 0;  // of what it waits for in its warp
  unsigned exchanges = 0;
  uint3 index;
  jmp_buf place;
  ucontext_t entry;
  std::unique_ptr<std::byte[]> stack = std::make_unique_for_overwrite<std::byte[]>(kStack);
};

/// What the lanes exchange. The place after the next is free once all are at the next.
struct Warp {
  std::uint64_t values[2][kLanes];
};

std::vector<std::unique_ptr<Fiber>> fibers;
std::vector<Warp> warps;
std::vector<std::byte> shared;
const std::function<void()>* running_kernel;
unsigned threads_of_block, current;
jmp_buf scheduler;
bool any_now, any_before;  // of AnyOfBlock
bool descending = false;   // the order in which blocks and threads run

[[noreturn]] void Fail(const char* what) {
  std::fprintf(stderr, "emulated GPU: block %u,%u: %s\n", blockIdx.x, blockIdx.y, what);
  std::abort();
}

void Wait(State state) {
  Fiber& fiber = *fibers[current];
  fiber.state = state;
  if (_setjmp(fiber.place) == 0) _longjmp(scheduler, 1);
}

/// A fiber serves one block's thread after the other.
void Enter() {
  for (;;) {
    (*running_kernel)();
    Wait(State::kEnded);
  }
}

/// Runs a fiber until it waits or ends.
void Switch(unsigned thread) {
  Fiber& fiber = *fibers[thread];
  current = thread;
  threadIdx = fiber.index;
  if (_setjmp(scheduler) != 0) return;
  if (fiber.entered) _longjmp(fiber.place, 1);
  fiber.entered = true;
  getcontext(&fiber.entry);
  fiber.entry.uc_stack.ss_sp = fiber.stack.get();
  fiber.entry.uc_stack.ss_size = kStack;
  fiber.entry.uc_link = nullptr;
  makecontext(&fiber.entry, Enter, 0);
  setcontext(&fiber.entry);
}

/// Lets the lanes go on whose whole mask waits. Returns whether there were any.
bool ReleaseWarp(unsigned first, unsigned end) {
  bool any = false;
  for (unsigned thread = first; thread < end; ++thread) {
    if (fibers[thread]->state != State::kInWarp) continue;
    const unsigned mask = fibers[thread]->mask;
    bool all = true;
    for (unsigned lane = 0; lane < kLanes; ++lane) {
      if ((mask >> lane & 1) == 0) continue;
      if (first + lane >= end || fibers[first + lane]->state == State::kEnded)
        Fail("a thread waits for a lane that has ended");
      all = all && fibers[first + lane]->state == State::kInWarp &&
            fibers[first + lane]->mask == mask;
    }
    if (!all) continue;
    for (unsigned lane = 0; lane < kLanes; ++lane)
      if ((mask >> lane & 1) != 0) fibers[first + lane]->state = State::kReady;
    any = true;
  }
  return any;
}

/// Runs a warp until none of its lanes is ready.
void RunWarp(unsigned first, unsigned end) {
  do {
    for (unsigned i = first; i < end; ++i) {
      const unsigned thread = descending ? first + end - 1 - i : i;
      if (fibers[thread]->state == State::kReady) Switch(thread);
    }
  } while (ReleaseWarp(first, end));
}

void RunBlock() {
  for (unsigned thread = 0; thread < threads_of_block; ++thread) {
    Fiber& fiber = *fibers[thread];
    fiber.state = State::kReady;
    fiber.exchanges = 0;
    fiber.index = {thread % blockDim.x, thread / blockDim.x % blockDim.y,
                   thread / blockDim.x / blockDim.y};
  }
  any_now = any_before = false;
  std::fill(shared.begin(), shared.end(), std::byte{0xff});
  const unsigned count = (threads_of_block + kLanes - 1) / kLanes;
  for (;;) {
    for (unsigned i = 0; i < count; ++i) {
      const unsigned warp = descending ? count - 1 - i : i;
      RunWarp(warp * kLanes, std::min(threads_of_block, (warp + 1) * kLanes));
    }
    bool ended = true;
    any_before = any_now;
    any_now = false;
    for (unsigned thread = 0; thread < threads_of_block; ++thread) {
      Fiber& fiber = *fibers[thread];
      if (fiber.state == State::kInWarp) Fail("a warp's lanes wait for ever");
      if (fiber.state == State::kEnded) continue;
      ended = false;
      fiber.state = State::kReady;
    }
    if (ended) return;
  }
}

std::map<void*, std::pair<void*, std::size_t>> mappings;

}  // namespace

void Run(dim3 blocks, dim3 threads, std::size_t shared_bytes, const std::function<void()>& kernel) {
  constexpr std::size_t kMostShared = std::size_t{227} << 10;  // of an H100's block
  if (blocks.x == 0 || blocks.y == 0 || blocks.y > 65535 || blocks.z != 1 ||
      threads.x * threads.y * threads.z > 1024 || shared_bytes > kMostShared)
    Fail("a launch that no GPU takes");
  gridDim = blocks;
  blockDim = threads;
  threads_of_block = threads.x * threads.y * threads.z;
  while (fibers.size() < threads_of_block) fibers.push_back(std::make_unique<Fiber>());
  warps.resize((threads_of_block + kLanes - 1) / kLanes);
  shared.resize(shared_bytes);
  running_kernel = &kernel;
  const std::uint64_t count = std::uint64_t{blocks.x} * blocks.y;
  for (std::uint64_t i = 0; i < count; ++i) {
    const std::uint64_t block = descending ? count - 1 - i : i;
    blockIdx = {static_cast<unsigned>(block % blocks.x), static_cast<unsigned>(block / blocks.x),
                0};
    RunBlock();
  }
}

void* DynamicShared() { return shared.data(); }

void WaitForBlock() { Wait(State::kAtBarrier); }

bool AnyOfBlock(bool value) {
  any_now = any_now || value;
  WaitForBlock();
  return any_before;
}

unsigned Lane() { return current % kLanes; }

const std::uint64_t* ExchangeInWarp(unsigned mask, std::uint64_t value) {
  Fiber& fiber = *fibers[current];
  auto& values = warps[current / kLanes].values[fiber.exchanges++ % 2];
  values[Lane()] = value;
  fiber.mask = mask;
  Wait(State::kInWarp);
  return values;
}

}  // namespace emulated_cuda

namespace adaptive_train::kernels {

bool SlowDevice() { return true; }
void RunDescending(bool descending) { emulated_cuda::descending = descending; }

}  // namespace adaptive_train::kernels

cudaError_t cudaMalloc(void** memory, std::size_t bytes) {
  constexpr std::size_t kAlignment = 64;
  static const auto page = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
  const std::size_t used = (bytes + kAlignment - 1) / kAlignment * kAlignment;
  const std::size_t pages = (used + page - 1) / page * page;
  void* const begin =
      ::mmap(nullptr, pages + page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (begin == MAP_FAILED) return cudaErrorMemoryAllocation;
  ::mprotect(static_cast<std::byte*>(begin) + pages, page, PROT_NONE);
  *memory = static_cast<std::byte*>(begin) + (pages - used);
  std::memset(*memory, 0xff, used);
  emulated_cuda::mappings[*memory] = {begin, pages + page};
  return cudaSuccess;
}

cudaError_t cudaFree(void* memory) {
  const auto at = emulated_cuda::mappings.find(memory);
  if (at == emulated_cuda::mappings.end()) return cudaSuccess;
  ::munmap(at->second.first, at->second.second);
  emulated_cuda::mappings.erase(at);
  return cudaSuccess;
}
