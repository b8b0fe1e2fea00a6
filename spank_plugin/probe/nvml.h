// The part of NVIDIA's management library (NVML) that the probe uses, loaded at run time if
// installed.
#pragma once

#include <memory>
#include <string>

#include "core/result.h"

namespace adaptive_train::probe {

// NVML's public C interface. Its names are kept; sizes and versions are part of its ABI.
using nvmlReturn_t = int;
using nvmlDevice_t = struct nvmlDevice_st*;
inline constexpr nvmlReturn_t kNvmlSuccess = 0;
inline constexpr unsigned kNvmlMaxLinks = 18;

struct nvmlPciInfo_t {
  char busIdLegacy[16];
  unsigned domain, bus, device, pciDeviceId, pciSubSystemId;
  char busId[32];
};

struct nvmlMemory_t {
  unsigned long long total, free, used;
};

/// NVML, initialised; it is shut down and unloaded with the object. Not thread-safe. Any call may
/// block for as long as the driver does.
class Nvml {
 public:
  /// Fails in one line if the library is not installed, too old, or cannot talk to the driver.
  static Result<std::unique_ptr<Nvml>> Open();
  ~Nvml();
  Nvml(const Nvml&) = delete;
  Nvml& operator=(const Nvml&) = delete;

  nvmlReturn_t (*device_count)(unsigned*);
  nvmlReturn_t (*handle_by_index)(unsigned, nvmlDevice_t*);
  nvmlReturn_t (*name)(nvmlDevice_t, char*, unsigned);
  nvmlReturn_t (*uuid)(nvmlDevice_t, char*, unsigned);
  nvmlReturn_t (*pci_info)(nvmlDevice_t, nvmlPciInfo_t*);
  nvmlReturn_t (*memory_info)(nvmlDevice_t, nvmlMemory_t*);
  nvmlReturn_t (*link_state)(nvmlDevice_t, unsigned, unsigned*);
  nvmlReturn_t (*link_remote_pci)(nvmlDevice_t, unsigned, nvmlPciInfo_t*);

  /// NVML's text for an error.
  std::string Message(nvmlReturn_t error) const;

 private:
  explicit Nvml(void* library) : library_(library) {}
  bool Load();
  template <class Function>
  bool LoadSymbol(Function& function, const char* symbol);

  void* library_;
  bool initialised_ = false;
  const char* missing_ = "";
  nvmlReturn_t (*init_)();
  nvmlReturn_t (*shutdown_)();
  const char* (*error_string_)(nvmlReturn_t);
};

}  // namespace adaptive_train::probe
