#include "spank_plugin/probe/nvml.h"

#include <dlfcn.h>

#include <cstring>

#include "core/file_io.h"

namespace adaptive_train::probe {

namespace {
constexpr char kLibrary[] = "libnvidia-ml.so.1";
}

template <class Function>
bool Nvml::LoadSymbol(Function& function, const char* symbol) {
  function = reinterpret_cast<Function>(::dlsym(library_, symbol));
  if (function == nullptr) missing_ = symbol;
  return function != nullptr;
}

bool Nvml::Load() {
  return LoadSymbol(init_, "nvmlInit_v2") && LoadSymbol(shutdown_, "nvmlShutdown") &&
         LoadSymbol(error_string_, "nvmlErrorString") &&
         LoadSymbol(device_count, "nvmlDeviceGetCount_v2") &&
         LoadSymbol(handle_by_index, "nvmlDeviceGetHandleByIndex_v2") &&
         LoadSymbol(name, "nvmlDeviceGetName") && LoadSymbol(uuid, "nvmlDeviceGetUUID") &&
         LoadSymbol(pci_info, "nvmlDeviceGetPciInfo_v3") &&
         LoadSymbol(memory_info, "nvmlDeviceGetMemoryInfo") &&
         LoadSymbol(link_state, "nvmlDeviceGetNvLinkState") &&
         LoadSymbol(link_remote_pci, "nvmlDeviceGetNvLinkRemotePciInfo_v2");
}

Result<std::unique_ptr<Nvml>> Nvml::Open() {
  void* library = ::dlopen(kLibrary, RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    const char* said = ::dlerror();
    const std::string why = said == nullptr ? "unknown error" : said;
    if (why.find("No such file") != std::string::npos && why.find(kLibrary) == 0) {
      return Fail(std::string("NVML is not installed (") + kLibrary + " not found)");
    }
    return Fail("NVML cannot be loaded: " + Printable(why));
  }
  std::unique_ptr<Nvml> nvml(new Nvml(library));
  if (!nvml->Load())
    return Fail(std::string("NVML is too old: ") + kLibrary + " has no " + nvml->missing_);
  if (const nvmlReturn_t error = nvml->init_(); error != kNvmlSuccess)
    return Fail("NVML does not start: " + nvml->Message(error));
  nvml->initialised_ = true;
  return nvml;
}

Nvml::~Nvml() {
  if (initialised_) shutdown_();
  ::dlclose(library_);
}

std::string Nvml::Message(nvmlReturn_t error) const {
  const char* text = error_string_(error);
  return text == nullptr ? "error " + std::to_string(error) : Printable(text);
}

}  // namespace adaptive_train::probe
