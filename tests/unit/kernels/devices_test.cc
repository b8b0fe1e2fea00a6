// Devices' descriptions of themselves.
#include <gtest/gtest.h>

#include "kernels/cpu/cpu_device.h"
#include "kernels/reference/reference_device.h"

namespace adaptive_train::kernels {
namespace {

TEST(Devices, SayWhatTheyAre) {
  EXPECT_NE(std::string::npos, cpu::CpuDevice<float>(2).Description().find("2 threads, "));
  EXPECT_NE(std::string::npos, cpu::CpuDevice<BFloat16>(1).Description().find("1 thread, "));
  EXPECT_NE(std::string::npos, reference::ReferenceDevice<double>().Description().find("float64"));
}

}  // namespace
}  // namespace adaptive_train::kernels
