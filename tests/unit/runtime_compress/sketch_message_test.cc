// Sketch messages survive a round trip; invalid ones are refused.
#include "runtime/compress/sketch_message.h"

#include <gtest/gtest.h>

#include <cstring>
#include <functional>
#include <limits>
#include <string>

namespace adaptive_train::sketch_message_test {
namespace {

constexpr SketchMessageKind kKind{SketchPhase::kSelected, 7, 41};
constexpr std::size_t kPayload = 24;
constexpr std::size_t kVersionAt = 4, kFlagsAt = 6, kZeroAt = 7, kLargestAt = 12;

const std::vector<std::byte>& Payload() {
  static const std::vector<std::byte> payload(kPayload, std::byte{0xa5});
  return payload;
}

std::vector<std::byte> Made(const SketchMessageKind& kind = kKind, float largest = 1.5f) {
  return WriteSketchMessage(kind, {true, largest, Payload()});
}

/// The changed message with a correct checksum.
std::vector<std::byte> Changed(std::size_t at, const void* data, std::size_t size) {
  auto bytes = Made();
  std::memcpy(bytes.data() + at, data, size);
  const std::uint64_t checksum = SketchMessageChecksum(bytes);
  std::memcpy(bytes.data() + kSketchHeaderBytes - 8, &checksum, sizeof checksum);
  return bytes;
}
std::vector<std::byte> Changed(std::size_t at, std::uint8_t byte) { return Changed(at, &byte, 1); }
std::vector<std::byte> WithLargest(float largest) {
  return Changed(kLargestAt, &largest, sizeof largest);
}

std::string WhyNot(const std::vector<std::byte>& bytes, const SketchMessageKind& kind = kKind,
                   std::size_t payload = kPayload) {
  const auto message = ReadSketchMessage(bytes, kind, payload);
  return message ? "" : message.error().message;
}

TEST(SketchMessage, ThereAndBackInAllPhases) {
  for (int phase = 0; phase < kSketchPhases; ++phase) {
    const SketchMessageKind kind{static_cast<SketchPhase>(phase), 3, std::int64_t{1} << 40};
    const auto bytes = Made(kind, 2.5f);
    EXPECT_EQ(bytes.size(), kSketchHeaderBytes + kPayload);
    const auto message = ReadSketchMessage(bytes, kind, kPayload);
    ASSERT_TRUE(message) << message.error().message;
    EXPECT_TRUE(message->finite);
    EXPECT_EQ(message->largest, 2.5f);
    EXPECT_EQ(std::vector(message->payload.begin(), message->payload.end()), Payload());
  }
}

TEST(SketchMessage, OfAnEmptyRange) {
  const auto bytes = WriteSketchMessage(kKind, {});
  EXPECT_EQ(bytes.size(), kSketchHeaderBytes);
  const auto message = ReadSketchMessage(bytes, kKind, 0);
  ASSERT_TRUE(message);
  EXPECT_TRUE(message->finite && message->payload.empty());
}

TEST(SketchMessage, NotFiniteIsTheHeaderAlone) {
  const auto bytes = WriteSketchMessage(kKind, {false, 3.0f, Payload()});
  EXPECT_EQ(bytes.size(), kSketchHeaderBytes);
  const auto message = ReadSketchMessage(bytes, kKind, kPayload);
  ASSERT_TRUE(message);
  EXPECT_FALSE(message->finite);
  EXPECT_EQ(message->largest, 0);
}

TEST(SketchMessage, EveryChangedBitIsRefused) {
  const auto right = Made();
  for (std::size_t bit = 0; bit < 8 * right.size(); ++bit) {
    auto bytes = right;
    bytes[bit / 8] ^= std::byte{1} << (bit % 8);
    EXPECT_NE(WhyNot(bytes), "") << bit;
  }
}

TEST(SketchMessage, EveryOtherLengthIsRefused) {
  const auto right = Made();
  for (std::size_t size = 0; size < right.size(); ++size)
    EXPECT_NE(WhyNot({right.begin(), right.begin() + static_cast<std::ptrdiff_t>(size)}), "");
  auto longer = right;
  longer.emplace_back();
  EXPECT_EQ(WhyNot(longer), "25 bytes after the header, which says 24");
  EXPECT_EQ(WhyNot({}), "0 bytes are no message");
}

TEST(SketchMessage, AnotherMessageIsRefused) {
  EXPECT_EQ(WhyNot(Made(), {SketchPhase::kUnion, 7, 41}), "phase 0, expected 1");
  EXPECT_EQ(WhyNot(Made(), {SketchPhase::kSelected, 8, 41}), "of bucket 7, expected 8");
  EXPECT_EQ(WhyNot(Made(), {SketchPhase::kSelected, 7, 42}), "of step 41, expected 42");
  EXPECT_EQ(WhyNot(Made(), kKind, 16), "a payload of 24 bytes, expected 16");
  EXPECT_EQ(WhyNot(Changed(0, 0)), "no sketch message");
  EXPECT_EQ(WhyNot(Changed(kVersionAt, 2)), "format version 2, expected 1");
}

TEST(SketchMessage, AHeaderThatMakesNoSenseIsRefused) {
  EXPECT_EQ(WhyNot(Changed(kFlagsAt, 2)), "unknown flags");
  EXPECT_EQ(WhyNot(Changed(kZeroAt, 1)), "unknown flags");
  EXPECT_EQ(WhyNot(Changed(kFlagsAt, 1)), "a largest value of 1.5");
  EXPECT_EQ(WhyNot(WithLargest(-1.0f)), "a largest value of -1");
  EXPECT_EQ(WhyNot(WithLargest(-0.0f)), "a largest value of -0");
  EXPECT_EQ(WhyNot(WithLargest(std::numeric_limits<float>::infinity())), "a largest value of inf");
  EXPECT_EQ(WhyNot(WithLargest(std::numeric_limits<float>::quiet_NaN())), "a largest value of nan");
  const SketchMessageKind sketch{SketchPhase::kSketch, 7, 41};
  EXPECT_EQ(WhyNot(WriteSketchMessage(sketch, {false, 0, {}}), sketch),
            "not finite, which is too late");
}

}  // namespace
}  // namespace adaptive_train::sketch_message_test
