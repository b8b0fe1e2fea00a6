// The bytes that ranks send each other when they exchange a bucket as a count sketch.
//
//   header   magic, format version, phase, flags, bucket, the largest magnitude, step, payload
//            bytes, checksum: XXH3 of all that follows, seeded with XXH3 of the header before the
//            checksum
//   payload  words of a bitmap (64 bits) or cells (32 bits)
//
// All numbers are little-endian. A message that says that a value of the bucket is not finite is
// the header alone.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "core/result.h"

namespace adaptive_train {

/// What a message holds: the part of one rank for the owner of a range, and the owner's total for
/// all. The numbers are part of the format.
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

/// Which message it is. A value.
struct SketchMessageKind {
  SketchPhase phase = SketchPhase::kSelected;
  std::uint32_t bucket = 0;
  std::int64_t step = 0;
};

/// What is in it. The payload is the caller's, or lies in the bytes that were read.
struct SketchMessage {
  bool finite = true;  // false: no largest and no payload; kSelected and kUnion only
  float largest = 0;   // size of a selected value: of the rank's, later of all ranks'
  std::span<const std::byte> payload;
};

/// Bytes of the header; its last 8 are the checksum.
inline constexpr std::size_t kSketchHeaderBytes = 40;

/// What the checksum of a message has to be, which has at least a header.
std::uint64_t SketchMessageChecksum(std::span<const std::byte> message);

std::vector<std::byte> WriteSketchMessage(const SketchMessageKind& kind,
                                          const SketchMessage& message);

/// Checks all but the payload's meaning against what is expected; a message with a payload has one
/// of `payload_bytes`. Errors say what is wrong in a few words. Allocates nothing.
Result<SketchMessage> ReadSketchMessage(std::span<const std::byte> bytes,
                                        const SketchMessageKind& expected,
                                        std::size_t payload_bytes);

}  // namespace adaptive_train
