// Is this UTF-8?
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace adaptive_train {

/// Bytes at the beginning of `text` that are well-formed UTF-8 (Unicode 15, table 3-7: no overlong
/// forms, no surrogates, nothing past U+10FFFF). text.size() if all are.
std::size_t ValidUtf8Bytes(std::string_view text);

/// `text` with U+FFFD in place of every byte that belongs to no well-formed character.
std::string ReplaceInvalidUtf8(std::string_view text);

}  // namespace adaptive_train
