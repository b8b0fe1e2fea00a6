// The version in every file we write: a newer one is refused, an older one is read or migrated.
#pragma once

namespace adaptive_train {

inline constexpr int kFormatVersion = 1;

}  // namespace adaptive_train
