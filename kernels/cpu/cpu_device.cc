// The processor's name and threads.
#include "kernels/cpu/cpu_device.h"

#include <oneapi/dnnl/dnnl.h>

namespace adaptive_train::kernels::cpu {
namespace {

/// The vector instructions that oneDNN found, which its products use.
const char* InstructionSet() {
  switch (dnnl_get_effective_cpu_isa()) {
    case dnnl_cpu_isa_sse41:
      return "SSE4.1";
    case dnnl_cpu_isa_avx:
      return "AVX";
    case dnnl_cpu_isa_avx2:
      return "AVX2";
    case dnnl_cpu_isa_avx2_vnni:
      return "AVX2 VNNI";
    case dnnl_cpu_isa_avx512_core:
      return "AVX-512";
    case dnnl_cpu_isa_avx512_core_vnni:
      return "AVX-512 VNNI";
    case dnnl_cpu_isa_avx512_core_bf16:
      return "AVX-512 BF16";
    case dnnl_cpu_isa_avx512_core_amx:
      return "AVX-512 AMX";
    default:
      return "another instruction set";
  }
}

}  // namespace

template <class T>
CpuDevice<T>::CpuDevice(int threads) : pool_(threads) {}

template <class T>
float* CpuDevice<T>::Scratch(std::int64_t floats) {
  const auto size = static_cast<std::size_t>(floats);
  if (scratch_.size() < size) {
    scratch_ = {};  // first the old one goes
    scratch_ = Buffer<float>(*this, size);
  }
  return scratch_.data();
}

template <class T>
std::string CpuDevice<T>::Description() const {
  const dnnl_version_t* version = dnnl_version();
  return "CPU, " + std::to_string(pool_.threads()) +
         (pool_.threads() == 1 ? " thread" : " threads") + ", oneDNN " +
         std::to_string(version->major) + "." + std::to_string(version->minor) + "." +
         std::to_string(version->patch) + ", " + InstructionSet();
}

template class CpuDevice<float>;
template class CpuDevice<BFloat16>;
template class CpuDevice<Float16>;

}  // namespace adaptive_train::kernels::cpu
