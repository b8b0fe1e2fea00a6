// Pages of the host's memory.
#pragma once

#include <cstddef>

namespace adaptive_train::kernels {

/// As DeviceMemory::Allocate. What is not sparse lies in huge pages as far as it fills them, where
/// the system has some to give: walks over matrices, row by row, would often wait for the address
/// of a small page.
void* AllocatePages(std::size_t bytes, bool sparse);
void FreePages(void* memory) noexcept;

/// `bytes` from `memory` on, of a heap's or an anonymous mapping's memory, become 0; those of them
/// that are whole pages leave the process until they are touched again.
void ReleasePages(void* memory, std::size_t bytes);

}  // namespace adaptive_train::kernels
