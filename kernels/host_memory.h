// Pages of the host's memory.
#pragma once

#include <cstddef>

namespace adaptive_train::kernels {

/// `bytes` from `memory` on, of a heap's or an anonymous mapping's memory, become 0; those of them
/// that are whole pages leave the process until they are touched again.
void ReleasePages(void* memory, std::size_t bytes);

}  // namespace adaptive_train::kernels
