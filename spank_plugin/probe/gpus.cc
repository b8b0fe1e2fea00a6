#include "spank_plugin/probe/gpus.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>

#include "spank_plugin/probe/nvml.h"
#include "spank_plugin/probe/small_file.h"

namespace adaptive_train::probe {
namespace {

constexpr unsigned kMaxGpus = 256;

/// NVML writes 00000000:3B:00.0 for what is otherwise written 0000:3b:00.0.
std::string PciAddress(const nvmlPciInfo_t& info) {
  std::string bus(info.busId, ::strnlen(info.busId, sizeof info.busId));
  const std::size_t function = bus.rfind('.');
  return fmt::format("{:04x}:{:02x}:{:02x}.{}", info.domain, info.bus, info.device,
                     function == std::string::npos ? "0" : bus.substr(function + 1));
}

/// PCI addresses at the far ends of a GPU's active NVLinks; for a switch its own address.
std::vector<std::string> NvlinkPeers(const Nvml& nvml, nvmlDevice_t device) {
  std::vector<std::string> peers;
  for (unsigned link = 0; link < kNvmlMaxLinks; ++link) {
    unsigned active = 0;
    nvmlPciInfo_t remote{};
    // Devices without this link, or without any, return an error.
    if (nvml.link_state(device, link, &active) != kNvmlSuccess || active == 0) continue;
    if (nvml.link_remote_pci(device, link, &remote) == kNvmlSuccess)
      peers.push_back(PciAddress(remote));
  }
  return peers;
}

Result<Gpu> AskGpu(const Nvml& nvml, unsigned index) {
  nvmlDevice_t device = nullptr;
  char model[96] = "";
  char uuid[96] = "";
  nvmlPciInfo_t pci{};
  nvmlMemory_t memory{};
  nvmlReturn_t error = nvml.handle_by_index(index, &device);
  if (error == kNvmlSuccess) error = nvml.name(device, model, sizeof model);
  if (error == kNvmlSuccess) error = nvml.uuid(device, uuid, sizeof uuid);
  if (error == kNvmlSuccess) error = nvml.pci_info(device, &pci);
  if (error == kNvmlSuccess) error = nvml.memory_info(device, &memory);
  if (error != kNvmlSuccess) return Fail(fmt::format("GPU {}: {}", index, nvml.Message(error)));
  Gpu gpu{static_cast<int>(index),
          model,
          uuid,
          PciAddress(pci),
          static_cast<std::int64_t>(memory.total),
          -1,
          NvlinkPeers(nvml, device)};
  gpu.numa_node = static_cast<int>(std::max<long long>(
      -1, ReadNumber("/sys/bus/pci/devices/" + gpu.pci + "/numa_node").value_or(-1)));
  return gpu;
}

}  // namespace

void ReadGpus(Node& node) {
  const auto nvml = Nvml::Open();
  if (!nvml) {
    node.gpus_status.status = nvml.error().message;
    return;
  }
  unsigned count = 0;
  if (const nvmlReturn_t error = (*nvml)->device_count(&count); error != kNvmlSuccess) {
    node.gpus_status.status = "NVML does not count the GPUs: " + (*nvml)->Message(error);
    return;
  }
  std::string problems;
  for (unsigned index = 0; index < std::min(count, kMaxGpus); ++index) {
    auto gpu = AskGpu(**nvml, index);
    if (gpu) {
      node.gpus.push_back(*gpu);
    } else {
      problems += (problems.empty() ? "" : "; ") + gpu.error().message;
    }
  }
  node.gpus_status.status = problems.empty() ? "ok" : problems;
}

}  // namespace adaptive_train::probe
