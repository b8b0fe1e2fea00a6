// The byte format of the messages that exchange a bucket as a count sketch.
//
//   header   magic, format version, phase, flags, bucket, the largest magnitude, step, payload
//            bytes, checksum: XXH3 of all that follows, seeded with XXH3 of the header before the
//            checksum
//   payload  words of a bitmap (64 bits) or cells (32 bits)
//
// All numbers are little-endian. A message about a bucket with a value that is not finite is the
// header alone.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "core/result.h"

namespace adaptive_train {

/// The content of a message: a rank's part for the owner of a range, or the owner's total for all.
/// The numbers are part of the format.
enum class SketchPhase : std::uint8_t {
  kSelected = 0,
  kUnion = 1,
  kSketch = 2,
  kSketchSum = 3,
  kPacked = 4,
  kPackedSum = 5,
};
inline constexpr int kSketchPhases = 6;

/// "selection", "union", ...
const char* NameOf(SketchPhase phase);

/// Identifies a message. A value.
struct SketchMessageKind {
  SketchPhase phase = SketchPhase::kSelected;
  std::uint32_t bucket = 0;
  std::int64_t step = 0;
};

/// The content. The payload belongs to the caller, or lies in the bytes that were read.
struct SketchMessage {
  bool finite = true;  // false: no largest and no payload; kSelected and kUnion only
  float largest = 0;   // largest selected magnitude: the rank's, later over all ranks
  std::span<const std::byte> payload;
};

/// Bytes of the header; its last 8 are the checksum.
inline constexpr std::size_t kSketchHeaderBytes = 40;

/// The expected checksum of a message, which has at least a header.
std::uint64_t SketchMessageChecksum(std::span<const std::byte> message);

std::vector<std::byte> WriteSketchMessage(const SketchMessageKind& kind,
                                          const SketchMessage& message);

/// Checks everything except the payload's meaning against what is expected. A message with a
/// payload has `payload_bytes` of it. Errors say briefly what is wrong. Allocates nothing.
Result<SketchMessage> ReadSketchMessage(std::span<const std::byte> bytes,
                                        const SketchMessageKind& expected,
                                        std::size_t payload_bytes);

}  // namespace adaptive_train
