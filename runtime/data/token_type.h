// The types of a token in a file: little-endian integers of several widths.
#pragma once

#include <array>
#include <bit>
#include <cstdint>
#include <optional>

namespace adaptive_train {

static_assert(std::endian::native == std::endian::little,
              "token files are little-endian and are read as they lie");

/// The values are the codes of Megatron's index, which has no code for uint32.
enum class TokenType : std::uint8_t {
  kUint8 = 1,
  kInt8 = 2,
  kInt16 = 3,
  kInt32 = 4,
  kInt64 = 5,
  kUint16 = 8,
  kUint32 = 255,
};

struct TokenTypeFacts {
  TokenType type;
  const char* name;
  std::int64_t bytes;
};

inline constexpr std::array<TokenTypeFacts, 7> kTokenTypes = {{
    {TokenType::kUint8, "uint8", 1},
    {TokenType::kInt8, "int8", 1},
    {TokenType::kInt16, "int16", 2},
    {TokenType::kInt32, "int32", 4},
    {TokenType::kInt64, "int64", 8},
    {TokenType::kUint16, "uint16", 2},
    {TokenType::kUint32, "uint32", 4},
}};

constexpr const TokenTypeFacts& FactsOf(TokenType type) {
  for (const TokenTypeFacts& facts : kTokenTypes) {
    if (facts.type == type) return facts;
  }
  return kTokenTypes[0];  // not reached: the table has every type
}

/// The type for a code of a Megatron index; none for floats (6, 7) and unknown codes.
constexpr std::optional<TokenType> TokenTypeOfMegatronCode(std::uint8_t code) {
  for (const TokenTypeFacts& facts : kTokenTypes) {
    if (facts.type != TokenType::kUint32 && static_cast<std::uint8_t>(facts.type) == code)
      return facts.type;
  }
  return std::nullopt;
}

}  // namespace adaptive_train
