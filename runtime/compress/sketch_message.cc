// Writes and reads the messages of a sketch exchange.
#include "runtime/compress/sketch_message.h"

#include <fmt/format.h>
#include <xxhash.h>

#include <bit>
#include <cassert>
#include <cmath>
#include <cstring>

namespace adaptive_train {
namespace {

static_assert(std::endian::native == std::endian::little, "numbers are stored as they are");

constexpr std::uint32_t kMagic = 0x4b535441;  // "ATSK"
constexpr std::uint8_t kFormatVersion = 1;
constexpr std::uint8_t kNotFiniteFlag = 1;

struct Header {
  std::uint32_t magic = kMagic;
  std::uint8_t format_version = kFormatVersion;
  std::uint8_t phase = 0;
  std::uint8_t flags = 0;
  std::uint8_t zero = 0;
  std::uint32_t bucket = 0;
  float largest = 0;
  std::int64_t step = 0;
  std::uint64_t payload_bytes = 0;
  std::uint64_t checksum = 0;
};
static_assert(sizeof(Header) == kSketchHeaderBytes);
static_assert(offsetof(Header, checksum) == kSketchHeaderBytes - sizeof(std::uint64_t));

tl::unexpected<Error> Refuse(std::string why) {
  return Fail(std::move(why), ExitCode::kRankFailure);
}

bool OfSelection(SketchPhase phase) {
  return phase == SketchPhase::kSelected || phase == SketchPhase::kUnion;
}

/// Checks everything that does not depend on the expected message.
Result<Header> ReadHeader(std::span<const std::byte> bytes) {
  if (bytes.size() < sizeof(Header))
    return Refuse(fmt::format("{} bytes are no message", bytes.size()));
  Header header;
  std::memcpy(&header, bytes.data(), sizeof header);
  if (header.magic != kMagic) return Refuse("no sketch message");
  if (header.format_version != kFormatVersion)
    return Refuse(
        fmt::format("format version {}, expected {}", header.format_version, kFormatVersion));
  if (header.payload_bytes != bytes.size() - sizeof(Header))
    return Refuse(fmt::format("{} bytes after the header, which says {}",
                              bytes.size() - sizeof(Header), header.payload_bytes));
  if (header.checksum != SketchMessageChecksum(bytes)) return Refuse("the checksum is wrong");
  return header;
}

Result<void> CheckExpected(const Header& header, const SketchMessageKind& expected) {
  if (header.phase != static_cast<std::uint8_t>(expected.phase))
    return Refuse(
        fmt::format("phase {}, expected {}", header.phase, static_cast<int>(expected.phase)));
  if (header.bucket != expected.bucket)
    return Refuse(fmt::format("of bucket {}, expected {}", header.bucket, expected.bucket));
  if (header.step != expected.step)
    return Refuse(fmt::format("of step {}, expected {}", header.step, expected.step));
  if ((header.flags & ~kNotFiniteFlag) != 0 || header.zero != 0) return Refuse("unknown flags");
  return {};
}

}  // namespace

const char* NameOf(SketchPhase phase) {
  constexpr const char* kNames[kSketchPhases] = {"selection",  "union",         "sketch",
                                                 "sketch sum", "packed values", "packed sum"};
  return kNames[static_cast<std::size_t>(phase)];
}

std::uint64_t SketchMessageChecksum(std::span<const std::byte> message) {
  assert(message.size() >= sizeof(Header));
  const auto payload = message.subspan(sizeof(Header));
  return XXH3_64bits_withSeed(payload.data(), payload.size(),
                              XXH3_64bits(message.data(), offsetof(Header, checksum)));
}

std::vector<std::byte> WriteSketchMessage(const SketchMessageKind& kind,
                                          const SketchMessage& message) {
  const auto payload = message.finite ? message.payload : std::span<const std::byte>();
  Header header{.phase = static_cast<std::uint8_t>(kind.phase),
                .flags = message.finite ? std::uint8_t{0} : kNotFiniteFlag,
                .bucket = kind.bucket,
                .largest = message.finite ? message.largest : 0,
                .step = kind.step,
                .payload_bytes = payload.size()};
  std::vector<std::byte> bytes;
  bytes.reserve(sizeof header + payload.size());
  bytes.resize(sizeof header);
  bytes.insert(bytes.end(), payload.begin(), payload.end());
  std::memcpy(bytes.data(), &header, sizeof header);
  header.checksum = SketchMessageChecksum(bytes);
  std::memcpy(bytes.data(), &header, sizeof header);
  return bytes;
}

Result<SketchMessage> ReadSketchMessage(std::span<const std::byte> bytes,
                                        const SketchMessageKind& expected,
                                        std::size_t payload_bytes) {
  const auto header = ReadHeader(bytes);
  if (!header) return tl::unexpected(header.error());
  if (auto right = CheckExpected(*header, expected); !right) return tl::unexpected(right.error());
  const bool finite = header->flags == 0;
  if (!finite && !OfSelection(expected.phase)) return Refuse("not finite, which is too late");
  if (!std::isfinite(header->largest) || std::signbit(header->largest) ||
      (header->largest != 0 && !finite))
    return Refuse(fmt::format("a largest value of {}", header->largest));
  const std::size_t payload_expected = finite ? payload_bytes : 0;
  if (header->payload_bytes != payload_expected)
    return Refuse(
        fmt::format("a payload of {} bytes, expected {}", header->payload_bytes, payload_expected));
  return SketchMessage{finite, header->largest, bytes.subspan(sizeof(Header))};
}

}  // namespace adaptive_train
