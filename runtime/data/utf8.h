// Validates and repairs UTF-8.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace adaptive_train {

/// The number of bytes at the start of `text` that are well-formed UTF-8; text.size() if all are.
/// Follows Unicode 15, table 3-7: no overlong forms, no surrogates, nothing past U+10FFFF.
std::size_t ValidUtf8Bytes(std::string_view text);

/// `text` with U+FFFD for every byte that is not part of a well-formed character.
std::string ReplaceInvalidUtf8(std::string_view text);

}  // namespace adaptive_train
