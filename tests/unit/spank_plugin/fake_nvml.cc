// An NVML that has two linked GPUs, or FAKE_NVML_GPUS of them in pairs, or fails as FAKE_NVML requests:
// start, count, gpu1 (has fallen off the bus), hang. Fault injection for the probe, which loads it like
// the real one. With FAKE_NVML_UUID all have that UUID: several ranks share one GPU.
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <string_view>

#include "spank_plugin/probe/nvml.h"

namespace {

using namespace adaptive_train::probe;

constexpr nvmlReturn_t kGpuIsLost = 15;
constexpr nvmlReturn_t kUnknown = 999;

bool Fails(std::string_view way) {
  const char* chosen = std::getenv("FAKE_NVML");
  return chosen != nullptr && way == chosen;
}

unsigned IndexOf(nvmlDevice_t device) {
  return static_cast<unsigned>(reinterpret_cast<std::size_t>(device)) - 1;
}

void FillPci(unsigned index, nvmlPciInfo_t* info) {
  *info = {};
  info->bus = index == 0 ? 0x3b : 0xae + index;
  std::snprintf(info->busId, sizeof info->busId, "00000000:%02X:00.0", info->bus);
}

}  // namespace

#pragma GCC visibility push(default)
extern "C" {

nvmlReturn_t nvmlInit_v2() {
  if (Fails("hang")) ::sleep(1000);
  return Fails("start") ? kUnknown : kNvmlSuccess;
}
nvmlReturn_t nvmlShutdown() { return kNvmlSuccess; }
const char* nvmlErrorString(nvmlReturn_t error) {
  return error == kGpuIsLost ? "GPU is lost" : "Unknown\nError";
}

nvmlReturn_t nvmlDeviceGetCount_v2(unsigned* count) {
  const char* chosen = std::getenv("FAKE_NVML_GPUS");
  *count = chosen != nullptr ? static_cast<unsigned>(std::atoi(chosen)) : 2;
  return Fails("count") ? kUnknown : kNvmlSuccess;
}
nvmlReturn_t nvmlDeviceGetHandleByIndex_v2(unsigned index, nvmlDevice_t* device) {
  if (index == 1 && Fails("gpu1")) return kGpuIsLost;
  *device = reinterpret_cast<nvmlDevice_t>(std::size_t{index} + 1);
  return kNvmlSuccess;
}
nvmlReturn_t nvmlDeviceGetName(nvmlDevice_t, char* name, unsigned size) {
  std::snprintf(name, size, "Fake H200");
  return kNvmlSuccess;
}
nvmlReturn_t nvmlDeviceGetUUID(nvmlDevice_t device, char* uuid, unsigned size) {
  if (const char* chosen = std::getenv("FAKE_NVML_UUID"); chosen != nullptr) {
    std::snprintf(uuid, size, "%s", chosen);
  } else {
    std::snprintf(uuid, size, "GPU-00000000-0000-0000-0000-%012u", IndexOf(device));
  }
  return kNvmlSuccess;
}
nvmlReturn_t nvmlDeviceGetPciInfo_v3(nvmlDevice_t device, nvmlPciInfo_t* info) {
  FillPci(IndexOf(device), info);
  return kNvmlSuccess;
}
nvmlReturn_t nvmlDeviceGetMemoryInfo(nvmlDevice_t, nvmlMemory_t* memory) {
  *memory = {150'000'000'000, 149'000'000'000, 1'000'000'000};
  return kNvmlSuccess;
}
nvmlReturn_t nvmlDeviceGetNvLinkState(nvmlDevice_t, unsigned link, unsigned* active) {
  *active = link < 2;
  return link < 3 ? kNvmlSuccess : kUnknown;
}
nvmlReturn_t nvmlDeviceGetNvLinkRemotePciInfo_v2(nvmlDevice_t device, unsigned,
                                                 nvmlPciInfo_t* info) {
  FillPci(IndexOf(device) ^ 1, info);
  return kNvmlSuccess;
}

}  // extern "C"
#pragma GCC visibility pop
