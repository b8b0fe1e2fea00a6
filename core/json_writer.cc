#include "core/json_writer.h"

#include <nlohmann/json.hpp>

namespace adaptive_train {
namespace {

constexpr std::string_view kReplacement = "\xef\xbf\xbd";

bool Continues(char byte) { return (static_cast<unsigned char>(byte) & 0xc0) == 0x80; }

/// The length of the character that `text` begins with, of two bytes or more; 0 if it is none
/// (Unicode 15, table 3-7: no surrogates, no longer form than needed).
std::size_t LengthOfCharacter(std::string_view text) {
  const auto first = static_cast<unsigned char>(text[0]);
  const std::size_t length = first >= 0xf0 ? 4 : first >= 0xe0 ? 3 : 2;
  if (first < 0xc2 || first > 0xf4 || text.size() < length) return 0;
  const auto second = static_cast<unsigned char>(text[1]);
  if ((first == 0xe0 && second < 0xa0) || (first == 0xed && second > 0x9f) ||
      (first == 0xf0 && second < 0x90) || (first == 0xf4 && second > 0x8f))
    return 0;
  for (std::size_t i = 1; i < length; ++i)
    if (!Continues(text[i])) return 0;
  return length;
}

void WriteControl(std::string& to, char byte) {
  constexpr char kDigits[] = "0123456789abcdef";
  switch (byte) {
    case '\n':
      to += "\\n";
      return;
    case '\t':
      to += "\\t";
      return;
    case '\r':
      to += "\\r";
      return;
    default:
      to += "\\u00";
      to += kDigits[static_cast<unsigned char>(byte) >> 4];
      to += kDigits[byte & 15];
  }
}

bool IsPlain(char byte) {
  const auto value = static_cast<unsigned char>(byte);
  return value >= 0x20 && value < 0x80 && byte != '"' && byte != '\\';
}

}  // namespace

void WriteJson(std::string& to, std::string_view text) {
  to += '"';
  while (!text.empty()) {
    std::size_t plain = 0;
    while (plain < text.size() && IsPlain(text[plain])) ++plain;
    to += text.substr(0, plain);
    text.remove_prefix(plain);
    if (text.empty()) break;
    std::size_t length = 1;
    if (text[0] == '"' || text[0] == '\\') {
      to += '\\';
      to += text[0];
    } else if (static_cast<unsigned char>(text[0]) < 0x20) {
      WriteControl(to, text[0]);
    } else if (const std::size_t whole = LengthOfCharacter(text); whole > 0) {
      to += text.substr(0, whole);
      length = whole;
    } else {
      to += kReplacement;
    }
    text.remove_prefix(length);
  }
  to += '"';
}

std::string Indented(const std::string& json, int spaces) {
  return nlohmann::ordered_json::parse(json).dump(spaces);
}

}  // namespace adaptive_train
