// Finds the shortest code of an index, and checks a received one.
#include "runtime/compress/index_coding.h"

#include <algorithm>
#include <cassert>

namespace adaptive_train {
namespace {

using Places = std::span<const std::uint32_t>;

/// Writes the places, plus one surplus entry at the end. Four at a time without a branch between
/// them: a processor cannot predict how many bits of a word are set.
void FindPlaces(std::int64_t length, const std::uint64_t* bitmap, std::uint32_t* places) {
  constexpr std::uint64_t kLastBit = std::uint64_t{1} << 63;
  for (std::size_t i = 0; i < BitmapWords(length); ++i) {
    std::uint64_t word = bitmap[i];
    do {
      for (int step = 0; step < 4; ++step) {
        *places = static_cast<std::uint32_t>(64 * i) +
                  static_cast<std::uint32_t>(std::countr_zero(word | kLastBit));
        places += word != 0 ? 1 : 0;
        word &= word - 1;
      }
    } while (word != 0);
  }
}

/// The sum of the gaps' quotients; below 2^32, as is the sum of the gaps.
std::uint32_t QuotientSum(Places places, int rice_bits) {
  std::uint32_t sum = places[0] >> rice_bits;
  for (std::size_t i = 1; i < places.size(); ++i)
    sum += (places[i] - places[i - 1] - 1) >> rice_bits;
  return sum;
}

struct RiceSize {
  int rice_bits = 0;
  std::uint64_t remainders = 0, quotients = 0;  // bits of the streams
  std::uint64_t bits() const { return remainders + quotients; }
  std::size_t bytes() const { return BytesOfBits(remainders) + BytesOfBits(quotients); }
};

RiceSize SizeWith(Places places, int rice_bits) {
  return {rice_bits, places.size() * static_cast<std::uint64_t>(rice_bits),
          places.size() + QuotientSum(places, rice_bits)};
}

/// The parameter with the fewest bits. The size is convex in the parameter: one bit more always
/// costs the same, and saves less each time. A walk downhill therefore ends at the minimum. It
/// starts at the optimum for random places: log2 of ln(golden ratio) times their mean distance
/// (Kiely, "Selecting the Golomb parameter in Rice coding", 2004).
RiceSize BestRice(Places places) {
  const double distance = (places.back() + 1.0) / static_cast<double>(places.size());
  const auto start = std::bit_width(static_cast<std::uint32_t>(0.4812 * distance));
  RiceSize best = SizeWith(places, std::min(static_cast<int>(start), kMaxRiceBits));
  for (const int step : {1, -1}) {
    const int from = best.rice_bits;
    for (int bits = from + step; bits >= 0 && bits <= kMaxRiceBits; bits += step) {
      const RiceSize next = SizeWith(places, bits);
      if (next.bits() >= best.bits()) break;
      best = next;
    }
    if (best.rice_bits != from) break;
  }
  return best;
}

void StoreBits(std::uint64_t word, std::uint64_t bits, std::byte* out) {
  std::memcpy(out, &word, BytesOfBits(bits));
}

void PackRemainders(Places places, int width, std::byte* out) {
  if (width == 0) return;
  const std::uint32_t mask = (std::uint32_t{1} << width) - 1;
  std::uint64_t word = 0;
  int fill = 0;
  std::uint32_t expected = 0;  // the place of a gap of 0
  for (const std::uint32_t place : places) {
    const std::uint64_t remainder = (place - expected) & mask;
    expected = place + 1;
    word |= remainder << fill;
    fill += width;
    if (fill >= 64) {
      std::memcpy(out, &word, sizeof word);
      out += sizeof word;
      fill -= 64;
      word = remainder >> (width - fill);
    }
  }
  StoreBits(word, static_cast<std::uint64_t>(fill), out);
}

void PackQuotients(Places places, int rice_bits, std::byte* out) {
  std::uint64_t word = 0, fill = 0;
  std::uint32_t expected = 0;
  for (const std::uint32_t place : places) {
    fill += (place - expected) >> rice_bits;
    expected = place + 1;
    for (; fill >= 64; fill -= 64) {
      std::memcpy(out, &word, sizeof word);
      out += sizeof word;
      word = 0;
    }
    word |= std::uint64_t{1} << fill++;
  }
  StoreBits(word, fill, out);
}

Result<void> CheckBitmap(const PieceIndex& index) {
  if (index.bytes.size() != BytesOfBits(static_cast<std::uint64_t>(index.length)))
    return Fail("the bitmap has a wrong length");
  std::int64_t ones = 0;
  for (std::size_t offset = 0; offset < index.bytes.size(); offset += sizeof(std::uint64_t))
    ones += std::popcount(LoadWord(index.bytes, offset));
  const auto used = static_cast<unsigned>(index.length % 8);
  if (used != 0 && (std::to_integer<unsigned>(index.bytes.back()) >> used) != 0)
    return Fail("bits past its end are set");
  if (ones != index.count) return Fail("the bitmap has another number of elements");
  return {};
}

/// Returns the sum of the remainders; checks that the bits after them are 0.
Result<std::uint64_t> RemainderSum(const PieceIndex& index) {
  const auto bytes = index.bytes.first(RemainderBytes(index));
  FieldReader remainders(bytes, index.rice_bits);
  std::uint64_t sum = 0;
  for (std::int64_t i = 0; i < index.count; ++i) sum += remainders.Next();
  const auto used = static_cast<std::uint64_t>(index.count) * index.rice_bits % 8;
  if (used != 0 && (std::to_integer<unsigned>(bytes.back()) >> used) != 0)
    return Fail("bits past its end are set");
  return sum;
}

/// Returns the sum of the quotients, limited so that all places fit 64 bits.
Result<std::uint64_t> QuotientSum(const PieceIndex& index) {
  const auto bytes = index.bytes.subspan(RemainderBytes(index));
  if (bytes.back() == std::byte{0}) return Fail("the gaps end before their bytes");
  std::int64_t ones = 0;
  for (std::size_t offset = 0; offset < bytes.size(); offset += sizeof(std::uint64_t))
    ones += std::popcount(LoadWord(bytes, offset));
  if (ones != index.count) return Fail("it has another number of gaps");
  const auto last = std::bit_width(std::to_integer<unsigned>(bytes.back()));
  const std::uint64_t used = 8 * (bytes.size() - 1) + static_cast<std::uint64_t>(last);
  const std::uint64_t zeros = used - static_cast<std::uint64_t>(ones);
  if (zeros > static_cast<std::uint64_t>(index.length - 1) >> index.rice_bits)
    return Fail("a place is past its end");
  return zeros;
}

Result<void> CheckRice(const PieceIndex& index) {
  if (index.rice_bits > kMaxRiceBits) return Fail("its Rice parameter is too large");
  if (index.bytes.size() >= BytesOfBits(static_cast<std::uint64_t>(index.length)))
    return Fail("its gaps are longer than a bitmap");
  if (index.bytes.size() <= RemainderBytes(index)) return Fail("its gaps are too short");
  const auto quotients = QuotientSum(index);
  if (!quotients) return tl::unexpected(quotients.error());
  const auto remainders = RemainderSum(index);
  if (!remainders) return tl::unexpected(remainders.error());
  const auto before_last = static_cast<std::uint64_t>(index.count - 1);
  if ((*quotients << index.rice_bits) + *remainders + before_last >=
      static_cast<std::uint64_t>(index.length))
    return Fail("a place is past its end");
  return {};
}

}  // namespace

IndexCode IndexEncoder::AppendTo(std::vector<std::byte>& out, std::int64_t length,
                                 const std::uint64_t* bitmap, std::int64_t count) {
  assert(count >= 0 && count <= length && length <= kMaxPieceLength);
  if (count == 0 || count == length) return {};
  const std::size_t bitmap_bytes = BytesOfBits(static_cast<std::uint64_t>(length));
  const auto append_bitmap = [&] {
    const auto* bytes = reinterpret_cast<const std::byte*>(bitmap);
    out.insert(out.end(), bytes, bytes + bitmap_bytes);
    return IndexCode{IndexCoding::kBitmap, 0, bitmap_bytes};
  };
  if (count >= length / kBitmapShare) return append_bitmap();
  places_.resize(static_cast<std::size_t>(count) + 1);
  FindPlaces(length, bitmap, places_.data());
  const Places places = Places(places_).first(static_cast<std::size_t>(count));
  const RiceSize rice = BestRice(places);
  const std::size_t begin = out.size();
  if (rice.bytes() >= bitmap_bytes) return append_bitmap();
  out.resize(begin + rice.bytes());
  PackRemainders(places, rice.rice_bits, out.data() + begin);
  PackQuotients(places, rice.rice_bits, out.data() + begin + BytesOfBits(rice.remainders));
  return {IndexCoding::kRice, static_cast<std::uint8_t>(rice.rice_bits), rice.bytes()};
}

Result<void> CheckIndex(const PieceIndex& index) {
  if (index.coding > IndexCoding::kRice) return Fail("its index coding is unknown");
  if (index.count < 0 || index.count > index.length) return Fail("more elements than it has");
  const bool none = index.count == 0 || index.count == index.length;
  if (none != (index.coding == IndexCoding::kNone)) return Fail("its index coding is wrong");
  if (index.coding == IndexCoding::kRice) return CheckRice(index);
  if (index.rice_bits != 0) return Fail("a Rice parameter without Rice codes");
  if (index.coding == IndexCoding::kBitmap) return CheckBitmap(index);
  if (!index.bytes.empty()) return Fail("an index where none is needed");
  return {};
}

}  // namespace adaptive_train
