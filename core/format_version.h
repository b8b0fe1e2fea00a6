// The version that every file we write carries: newer is refused, older is read or migrated.
#pragma once

namespace adaptive_train {

inline constexpr int kFormatVersion = 1;

}  // namespace adaptive_train
