// SHA-256 (FIPS 180-4).
#pragma once

#include <string>
#include <string_view>

namespace adaptive_train {

/// 64 hexadecimal digits. Throws std::runtime_error if libcrypto has none.
std::string Sha256Of(std::string_view text);

}  // namespace adaptive_train
