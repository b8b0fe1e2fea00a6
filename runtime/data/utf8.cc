// Well-formed byte sequences by Unicode's table 3-7.
#include "runtime/data/utf8.h"

#include <cstdint>

namespace adaptive_train {
namespace {

/// Bytes of the character at the start of `text`, which is not empty; 0 if it is invalid.
std::size_t CharacterBytes(std::string_view text) {
  const auto byte = [&](std::size_t i) { return static_cast<std::uint8_t>(text[i]); };
  const std::uint8_t lead = byte(0);
  if (lead < 0x80) return 1;
  if (lead < 0xc2 || lead > 0xf4) return 0;
  const std::size_t bytes = lead < 0xe0 ? 2 : lead < 0xf0 ? 3 : 4;
  if (text.size() < bytes) return 0;
  for (std::size_t i = 1; i < bytes; ++i) {
    if ((byte(i) & 0xc0) != 0x80) return 0;
  }
  const bool overlong = (lead == 0xe0 && byte(1) < 0xa0) || (lead == 0xf0 && byte(1) < 0x90);
  const bool surrogate = lead == 0xed && byte(1) > 0x9f;
  const bool too_large = lead == 0xf4 && byte(1) > 0x8f;
  return overlong || surrogate || too_large ? 0 : bytes;
}

}  // namespace

std::size_t ValidUtf8Bytes(std::string_view text) {
  std::size_t valid = 0;
  while (valid < text.size()) {
    const std::size_t bytes = CharacterBytes(text.substr(valid, 4));
    if (bytes == 0) return valid;
    valid += bytes;
  }
  return valid;
}

std::string ReplaceInvalidUtf8(std::string_view text) {
  std::string replaced;
  for (;;) {
    const std::size_t valid = ValidUtf8Bytes(text);
    replaced += text.substr(0, valid);
    if (valid == text.size()) return replaced;
    replaced += "\xef\xbf\xbd";
    text.remove_prefix(valid + 1);
  }
}

}  // namespace adaptive_train
