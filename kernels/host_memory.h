// Pages of the host's memory.
#pragma once

#include <cstddef>

namespace adaptive_train::kernels {

/// As DeviceMemory::Allocate. Memory that is not sparse lies in whole huge pages where the system
/// has some to give. Walking a matrix row by row would miss the TLB often with small pages.
void* AllocatePages(std::size_t bytes, bool sparse);
void FreePages(void* memory) noexcept;

/// Sets `bytes` from `memory` on to 0, in the memory of a heap or an anonymous mapping. Whole pages
/// among them leave the process until they are touched again.
void ReleasePages(void* memory, std::size_t bytes);

}  // namespace adaptive_train::kernels
