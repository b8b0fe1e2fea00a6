// Whose a stored row is.
#pragma once

#include <cstdint>

namespace adaptive_train {

/// A uid in a store that users share.
using Owner = std::int64_t;
/// Of all rows in a file of one's own.
inline constexpr Owner kFileOwner = -1;

}  // namespace adaptive_train
