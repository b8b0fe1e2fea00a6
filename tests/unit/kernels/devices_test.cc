// Devices' descriptions of themselves, and devices that are not to be had.
#include <dlfcn.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "kernels/cpu/cpu_device.h"
#include "kernels/make_device.h"
#include "kernels/reference/reference_device.h"

namespace adaptive_train::kernels::devices_test {
namespace {

TEST(Devices, SayWhatTheyAre) {
  EXPECT_NE(std::string::npos, cpu::CpuDevice<float>(2).Description().find("2 threads, "));
  EXPECT_NE(std::string::npos, cpu::CpuDevice<BFloat16>(1).Description().find("1 thread, "));
  EXPECT_NE(std::string::npos, reference::ReferenceDevice<double>().Description().find("float64"));
}

std::string WhyNo(const std::string& kind, const std::string& uuid) {
  adaptive_train::Device device;
  device.node = "n1";
  device.kind = kind;
  device.uuid = uuid;
  const auto made = MakeDevice<float>(device);
  if (made) return "it was made";
  EXPECT_EQ(made.error().exit_code, ExitCode::kPreflight);
  EXPECT_EQ(made.error().message.find('\n'), std::string::npos);
  return made.error().message;
}

TEST(Devices, OfAnUnknownKindOrWithoutAnIdentityAreRefused) {
  EXPECT_THAT(WhyNo("abacus", ""),
              testing::StartsWith("a device of kind \"abacus\": this program computes on cpu"));
  EXPECT_THAT(WhyNo("cuda", ""), testing::HasSubstr("has no UUID"));
}

/// What the line says depends on what this machine has.
TEST(Devices, AGpuThatIsNotThereIsToldInOneLine) {
  const std::string why = WhyNo("cuda", "GPU-01234567-89ab-cdef-0123-456789abcdef");
  const auto library = std::filesystem::read_symlink("/proc/self/exe").parent_path() /
                       "../lib/libadaptive_train_cuda.so";
  if (!std::filesystem::exists(library))
    EXPECT_THAT(why, testing::HasSubstr("libadaptive_train_cuda.so, which is not installed"));
  else if (::dlopen("libcuda.so.1", RTLD_LAZY) == nullptr)
    EXPECT_EQ(why, "GPU: no NVIDIA driver is installed here (no libcuda.so.1)");
  else
    EXPECT_THAT(why, testing::HasSubstr("see `nvidia-smi -L`"));
}

}  // namespace
}  // namespace adaptive_train::kernels::devices_test
