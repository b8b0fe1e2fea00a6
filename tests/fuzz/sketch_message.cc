// Messages of the sketch exchange, unchanged or with a corrected checksum. Accepted ones must have
// the expected length, and written again must give the same bytes.
#include "runtime/compress/sketch_message.h"

#include <cmath>
#include <cstring>

#include "tests/fuzz/fuzz.h"

namespace adaptive_train::fuzz {
namespace {

constexpr std::size_t kPayloadBytesAt = 24, kChecksumAt = 32;

void ReadAll(const std::vector<std::byte>& bytes) {
  for (int phase = 0; phase < kSketchPhases; ++phase) {
    const SketchMessageKind kind{static_cast<SketchPhase>(phase), 3, 5};
    for (const std::size_t payload : {0u, 8u, 64u}) {
      const auto message = ReadSketchMessage(bytes, kind, payload);
      if (!message) {
        Require(!message.error().message.empty());
        continue;
      }
      Require(message->payload.size() == (message->finite ? payload : 0));
      Require(std::isfinite(message->largest) && message->largest >= 0);
      Require(WriteSketchMessage(kind, *message) == bytes);
    }
  }
}

void Seal(std::vector<std::byte>& bytes) {
  const std::uint64_t checksum = SketchMessageChecksum(bytes);
  std::memcpy(bytes.data() + kChecksumAt, &checksum, sizeof checksum);
}

}  // namespace

void FuzzOne(std::string_view input) {
  const auto* data = reinterpret_cast<const std::byte*>(input.data());
  std::vector<std::byte> bytes(data, data + input.size());
  ReadAll(bytes);
  if (bytes.size() < kSketchHeaderBytes) return;
  Seal(bytes);
  ReadAll(bytes);
  const std::uint64_t payload_bytes = bytes.size() - kSketchHeaderBytes;
  std::memcpy(bytes.data() + kPayloadBytesAt, &payload_bytes, sizeof payload_bytes);
  Seal(bytes);
  ReadAll(bytes);
}

std::vector<std::string> FuzzSeeds() {
  const std::vector<std::byte> payload(64, std::byte{0x5a});
  std::vector<std::string> seeds;
  const auto add = [&](SketchPhase phase, const SketchMessage& message) {
    const auto bytes = WriteSketchMessage({phase, 3, 5}, message);
    seeds.emplace_back(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  };
  for (int phase = 0; phase < kSketchPhases; ++phase) {
    for (const std::size_t size : {0u, 8u, 64u})
      add(static_cast<SketchPhase>(phase), {true, 0.5f, std::span(payload).first(size)});
  }
  add(SketchPhase::kSelected, {false, 0, {}});
  add(SketchPhase::kUnion, {false, 0, {}});
  return seeds;
}

}  // namespace adaptive_train::fuzz
