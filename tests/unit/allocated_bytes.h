// How much memory a test's code asks for, for what must not grow with the number of ranks.
#pragma once

#include <cstddef>

namespace adaptive_train {

/// All that operator new has given to this program so far, whether it was given back or not.
std::size_t AllocatedBytes();

}  // namespace adaptive_train
