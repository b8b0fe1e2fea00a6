// The limit of files and sockets that this process may have open.
#pragma once

#include <cstddef>

namespace adaptive_train {

/// Raises the soft limit to the hard one. Processes started later inherit it. Returns the new
/// limit.
std::size_t RaiseFileLimit();

}  // namespace adaptive_train
