// Handles eight codes at a time, as the bytes of one word.
#include "runtime/compress/size_codes.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cassert>
#include <cstring>
#include <limits>
#include <type_traits>

#include "kernels/sparsify.h"

namespace adaptive_train {
namespace {

constexpr std::size_t kWords = 8;  // of a block
using Block = std::array<std::uint64_t, kWords>;
static_assert(sizeof(Block) == kCodesAtOnce);

std::int64_t Blocks(std::int64_t count) { return RoomForCodes(count) / kCodesAtOnce; }

/// A word with the same byte eight times.
constexpr std::uint64_t Bytes(std::uint64_t byte) { return byte * 0x0101'0101'0101'0101ULL; }
constexpr std::uint64_t LowBits(std::size_t count) { return (std::uint64_t{1} << count) - 1; }

constexpr std::uint64_t kSigns = Bytes(0x80), kSizes = Bytes(0x7f);

/// The code for sizes that do not fit.
constexpr std::uint64_t EscapeOf(int bits) { return LowBits(static_cast<std::size_t>(bits) - 1); }

/// Bit 7 of each byte whose size is at least the escape.
constexpr std::uint64_t TooLarge(std::uint64_t sizes, int bits) {
  return (sizes + Bytes(0x80 - EscapeOf(bits))) & kSigns;
}

/// Collects bit 7 of each byte.
constexpr std::uint64_t TopBits(std::uint64_t x) {
  return (x & kSigns) / 0x80 * 0x0102'0408'1020'4080ULL >> 56;
}

/// Calls visit(constant) with the bits, which are below 8, as a constant.
template <class Visit>
auto WithBits(int bits, Visit visit) {
  switch (bits) {
    case 4:
      return visit(std::integral_constant<int, 4>());
    case 5:
      return visit(std::integral_constant<int, 5>());
    case 6:
      return visit(std::integral_constant<int, 6>());
    default:
      return visit(std::integral_constant<int, 7>());
  }
}

Block LoadBlock(const std::byte* from, std::size_t bytes) {
  Block block{};
  std::memcpy(block.data(), from, bytes);
  return block;
}

/// Gathered packs words of byte codes into kBits full words, Spread unpacks them. Code word i
/// starts at bit `at` of the bytes of word `word`.
template <int kBits>
Block Gathered(const Block& codes) {
  constexpr std::size_t kWide = kBits;
  Block packed{};
#pragma GCC unroll 8
  for (std::size_t i = 0; i < kWords; ++i) {
    const std::size_t word = i * kWide / 8, at = i * kWide % 8, here = std::min(kWide, 8 - at);
    packed[word] |= (codes[i] & Bytes(LowBits(here))) << at;
    if (here < kWide) packed[word + 1] |= codes[i] >> here & Bytes(LowBits(kWide - here));
  }
  return packed;
}

template <int kBits>
Block Spread(const Block& packed) {
  constexpr std::size_t kWide = kBits;
  Block codes{};
#pragma GCC unroll 8
  for (std::size_t i = 0; i < kWords; ++i) {
    const std::size_t word = i * kWide / 8, at = i * kWide % 8, here = std::min(kWide, 8 - at);
    codes[i] = packed[word] >> at & Bytes(LowBits(here));
    if (here < kWide) codes[i] |= (packed[word + 1] & Bytes(LowBits(kWide - here))) << here;
  }
  return codes;
}

template <int kBits>
bool Unpack(std::span<const std::byte> packed, std::int64_t count, std::byte* codes) {
  constexpr std::size_t kBytes = kBits * kWords;
  const std::int64_t blocks = Blocks(count);
  const std::byte* from = packed.data();
  const std::byte* escaped = from + static_cast<std::size_t>(blocks) * kBytes;
  const std::byte* const end = from + packed.size();
  std::uint64_t behind = 0;  // after the last code
  for (std::int64_t block = 0; block < blocks; ++block, from += kBytes, codes += kCodesAtOnce) {
    Block words = Spread<kBits>(LoadBlock(from, kBytes));
    std::uint64_t escapes = 0;
    for (std::size_t i = 0; i < kWords; ++i) {
      const std::uint64_t size = words[i] & Bytes(EscapeOf(kBits));
      words[i] = size | (words[i] << (8 - kBits) & kSigns);
      escapes |= TopBits(TooLarge(size, kBits)) << 8 * i;
    }
    std::memcpy(codes, words.data(), sizeof words);
    for (std::int64_t i = count - block * kCodesAtOnce; i < kCodesAtOnce; ++i)
      behind |= static_cast<std::uint64_t>(codes[i]);
    if (std::popcount(escapes) > end - escaped) return false;
    for (; escapes != 0; escapes &= escapes - 1) codes[std::countr_zero(escapes)] = *escaped++;
  }
  return escaped == end && behind == 0;
}

/// The smallest number of bits, estimated from a sample of the codes.
int BitsOf(std::span<const std::byte> codes) {
  constexpr std::size_t kLooks = 512;
  const std::size_t words = codes.size() / sizeof(std::uint64_t), step = words / kLooks + 1;
  int best = kMostCodeBits;
  std::size_t least = std::numeric_limits<std::size_t>::max();
  for (int bits = kMostCodeBits; bits >= kLeastCodeBits; --bits) {
    std::size_t taken = 0;
    for (std::size_t word = 0; word < words; word += step) {
      std::uint64_t x;
      std::memcpy(&x, codes.data() + word * sizeof x, sizeof x);
      taken += static_cast<std::size_t>(bits);
      if (bits < kMostCodeBits)
        taken += static_cast<std::size_t>(std::popcount(TooLarge(x & kSizes, bits)));
    }
    if (taken < least) best = bits;
    least = std::min(least, taken);
  }
  return best;
}

/// Converts to byte codes, padded with zeros.
void CodesOf(std::span<const kernels::BFloat16> values, int smallest, std::span<std::byte> codes) {
  // The number of a size is a bfloat16's bits from the fifth on.
  const auto least = static_cast<std::uint16_t>(smallest);
  for (std::size_t i = 0; i < values.size(); ++i) {
    const std::uint16_t bits = values[i].bits;
    assert((bits >> 5 & 0x3ff) - least >= 0 && (bits >> 5 & 0x3ff) - least < kernels::kFloat8Sizes);
    const auto above = static_cast<std::uint16_t>((bits >> 5) - least);
    codes[i] = static_cast<std::byte>((above & 0x7f) | (bits >> 8 & 0x80));
  }
  std::ranges::fill(codes.subspan(values.size()), std::byte{0});
}

}  // namespace

std::size_t PackedCodeBytes(std::int64_t count, const CodePacking& packing) {
  if (packing.bits == kMostCodeBits) return static_cast<std::size_t>(count);
  return static_cast<std::size_t>(Blocks(count) * packing.bits) * kWords + packing.escapes;
}

template <int kBits>
void CodePacker::Pack(std::int64_t blocks, kernels::PooledVector<std::byte>& out) {
  constexpr std::size_t kBytes = kBits * kWords;
  const std::size_t begin = out.size();
  out.resize(begin + static_cast<std::size_t>(blocks) * kBytes);
  std::byte* to = out.data() + begin;
  const std::byte* from = codes_.data();
  escaped_.resize(codes_.size());
  std::byte* escaped = escaped_.data();
  for (std::int64_t block = 0; block < blocks; ++block, from += kCodesAtOnce, to += kBytes) {
    Block words = LoadBlock(from, sizeof words);
    std::uint64_t escapes = 0;
    for (std::size_t i = 0; i < kWords; ++i) {
      const std::uint64_t large = TooLarge(words[i] & kSizes, kBits);
      escapes |= TopBits(large) << 8 * i;
      const std::uint64_t size =
          (words[i] | large / 0x80 * EscapeOf(kBits)) & Bytes(EscapeOf(kBits));
      words[i] = size | (words[i] & kSigns) >> (8 - kBits);
    }
    for (; escapes != 0; escapes &= escapes - 1) *escaped++ = from[std::countr_zero(escapes)];
    std::memcpy(to, Gathered<kBits>(words).data(), kBytes);
  }
  out.insert(out.end(), escaped_.data(), escaped);
}

CodePacking CodePacker::AppendTo(kernels::PooledVector<std::byte>& out,
                                 std::span<const kernels::BFloat16> values, int smallest) {
  const auto count = static_cast<std::int64_t>(values.size());
  const std::int64_t blocks = Blocks(count);
  const auto room = static_cast<std::size_t>(RoomForCodes(count));
  codes_.resize(std::max(codes_.size(), room));
  const std::span codes = std::span(codes_).first(room);
  CodesOf(values, smallest, codes);
  const std::size_t begin = out.size();
  const int bits = BitsOf(codes);
  if (bits < kMostCodeBits) {
    WithBits(bits, [&](auto constant) { Pack<constant.value>(blocks, out); });
    const std::size_t taken = out.size() - begin;
    if (taken < values.size())
      return {bits, static_cast<std::uint32_t>(taken - PackedCodeBytes(count, {bits, 0}))};
    out.resize(begin);
  }
  out.insert(out.end(), codes.begin(), codes.begin() + count);
  return {};
}

bool UnpackCodes(std::span<const std::byte> packed, std::int64_t count, const CodePacking& packing,
                 std::byte* codes) {
  assert(packed.size() == PackedCodeBytes(count, packing));
  if (packing.bits == kMostCodeBits) {
    std::ranges::copy(packed, codes);
    return true;
  }
  return WithBits(packing.bits,
                  [&](auto constant) { return Unpack<constant.value>(packed, count, codes); });
}

}  // namespace adaptive_train
