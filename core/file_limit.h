// How many files and sockets this process may have open at once.
#pragma once

#include <cstddef>

namespace adaptive_train {

/// Raises the soft limit to the hard one, which processes started from here on inherit; gives what
/// is allowed now.
std::size_t RaiseFileLimit();

}  // namespace adaptive_train
