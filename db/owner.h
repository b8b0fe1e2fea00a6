// Whose a stored row is.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace adaptive_train {

/// A uid in a store that users share.
using Owner = std::int64_t;
/// Of all rows in a file of one's own.
inline constexpr Owner kFileOwner = -1;

/// Jobs of one owner, and those that are charged to some accounts.
struct JobsOf {
  Owner owner = 0;
  std::vector<std::string> accounts = {};
};

}  // namespace adaptive_train
