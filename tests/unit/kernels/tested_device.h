// The device under test: the CPU, or in programs of their own a GPU, emulated or real.
#pragma once

#include <gtest/gtest.h>

#include <array>
#include <string>

#if defined(ADAPTIVE_TRAIN_TEST_CUDA)

#include "kernels/cuda/cuda_device.h"

namespace adaptive_train::kernels {

/// Whether tests leave out what takes an emulated device long and shows nothing else. The programs
/// for emulated and for real GPUs share the tests' objects and differ in these two functions.
bool SlowDevice();
/// An emulated GPU runs blocks and threads in ascending or in descending order. A real one has an order
/// of its own.
void RunDescending(bool descending);

/// Several threads are descending order.
template <class T>
class TestedDevice : public cuda::CudaDevice<T> {
 public:
  explicit TestedDevice(int threads) : cuda::CudaDevice<T>(0) { RunDescending(threads > 1); }
};

/// Other numbers of threads, whose results must have the same bits.
inline constexpr std::array kOtherThreads{2};

template <class Body>
void OnEveryInstructionSet(const Body& body) {
  body(std::string("CUDA"));
}

}  // namespace adaptive_train::kernels

#else

#include <hwy/highway.h>

#include "kernels/cpu/cpu_device.h"
#include "kernels/cpu/tile_product.h"
#include "tests/sanitized.h"

namespace adaptive_train::kernels {

template <class T>
using TestedDevice = cpu::CpuDevice<T>;
constexpr auto OtherThreads() {
  if constexpr (kSanitized)
    return std::array{3};
  else
    return std::array{2, 3};
}
inline constexpr auto kOtherThreads = OtherThreads();
inline bool SlowDevice() { return false; }

/// Calls body(name) with each instruction set that this processor has and the kernels are compiled
/// for, and with what multiplies tiles. In programs in which that is emulated, with it alone.
template <class Body>
void OnEveryInstructionSet(const Body& body) {
#if defined(ADAPTIVE_TRAIN_EMULATED_UNIT)
  ASSERT_NE(cpu::TileUnit::kNone, cpu::TileUnitHere());
#else
  for (const std::int64_t target : hwy::SupportedAndGeneratedTargets()) {
    hwy::SetSupportedTargetsForTest(target);
    body(std::string(hwy::TargetName(target)));
  }
  hwy::SetSupportedTargetsForTest(0);
#endif
  if (cpu::TileUnitHere() != cpu::TileUnit::kNone) body(std::string("tiles"));
}

}  // namespace adaptive_train::kernels

#endif
