// Reads TensorBoard event files for tests, sharing nothing with the code that writes them:
// checksums bit by bit, fields by the protobuf encoding's own rules.
#pragma once

#include <bit>
#include <cstdint>
#include <cstring>
#include <map>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

namespace adaptive_train::test {

struct ReadEvent {
  double wall_time = 0;
  std::int64_t step = 0;
  std::string file_version;
  std::optional<std::uint64_t> session_status;
  std::map<std::string, float> scalars;
};

/// CRC-32C by polynomial division, one bit at a time.
inline std::uint32_t BitwiseCrc32c(std::string_view bytes) {
  std::uint32_t crc = 0xffffffff;
  for (const char c : bytes) {
    for (int bit = 0; bit < 8; ++bit) {
      const bool in = ((static_cast<unsigned char>(c) >> bit) & 1) != 0;
      const bool out = (crc & 1) != 0;
      crc >>= 1;
      if (in != out) crc ^= 0x82f63b78;
    }
  }
  return crc ^ 0xffffffff;
}

/// Takes numbers and messages off the front of some bytes; throws where there are too few.
class Wire {
 public:
  explicit Wire(std::string_view bytes) : rest_(bytes) {}
  bool Empty() const { return rest_.empty(); }
  std::string_view Take(std::uint64_t count) {
    if (count > rest_.size()) throw std::runtime_error("cut off");
    const std::string_view taken = rest_.substr(0, count);
    rest_.remove_prefix(count);
    return taken;
  }
  std::uint64_t Little(int bytes) {
    const std::string_view taken = Take(static_cast<std::uint64_t>(bytes));
    std::uint64_t value = 0;
    for (int i = bytes - 1; i >= 0; --i)
      value = value * 256 + static_cast<unsigned char>(taken[static_cast<std::size_t>(i)]);
    return value;
  }
  std::uint64_t Varint() {
    std::uint64_t value = 0;
    for (int shift = 0; shift < 64; shift += 7) {
      const std::uint64_t byte = Little(1);
      value |= (byte & 127) << shift;
      if (byte < 128) return value;
    }
    throw std::runtime_error("varint too long");
  }

 private:
  std::string_view rest_;
};

/// Calls `take(field, number, bytes)` for each field: `number` holds varints and the bits of fixed
/// numbers, `bytes` what has a length.
template <class Take>
void EachField(std::string_view message, Take take) {
  for (Wire wire(message); !wire.Empty();) {
    const std::uint64_t key = wire.Varint();
    switch (key & 7) {
      case 0:
        take(key >> 3, wire.Varint(), std::string_view());
        break;
      case 1:
        take(key >> 3, wire.Little(8), std::string_view());
        break;
      case 2:
        take(key >> 3, 0, wire.Take(wire.Varint()));
        break;
      case 5:
        take(key >> 3, wire.Little(4), std::string_view());
        break;
      default:
        throw std::runtime_error("unknown wire type");
    }
  }
}

inline ReadEvent ParseEvent(std::string_view message) {
  ReadEvent event;
  using Bytes = std::string_view;
  EachField(message, [&](std::uint64_t field, std::uint64_t number, Bytes bytes) {
    if (field == 1) event.wall_time = std::bit_cast<double>(number);
    if (field == 2) event.step = static_cast<std::int64_t>(number);
    if (field == 3) event.file_version = bytes;
    if (field == 7)
      EachField(bytes, [&](std::uint64_t f, std::uint64_t n, Bytes) {
        if (f == 1) event.session_status = n;
      });
    if (field != 5) return;
    EachField(bytes, [&](std::uint64_t, std::uint64_t, Bytes value) {
      std::string tag;
      float simple_value = 0;
      EachField(value, [&](std::uint64_t f, std::uint64_t n, Bytes b) {
        if (f == 1) tag = b;
        if (f == 2) simple_value = std::bit_cast<float>(static_cast<std::uint32_t>(n));
      });
      event.scalars[tag] = simple_value;
    });
  });
  return event;
}

/// All events of a file's bytes; throws on a wrong checksum or a file that ends in between.
inline std::vector<ReadEvent> ParseEvents(std::string_view file) {
  auto masked = [](std::string_view bytes) {
    const std::uint32_t crc = BitwiseCrc32c(bytes);
    return static_cast<std::uint32_t>(((crc >> 15) | (crc << 17)) + 0xa282ead8);
  };
  std::vector<ReadEvent> events;
  for (Wire wire(file); !wire.Empty();) {
    const std::string_view length = wire.Take(8);
    if (wire.Little(4) != masked(length)) throw std::runtime_error("checksum of a length");
    const std::string_view message = wire.Take(Wire(length).Little(8));
    if (wire.Little(4) != masked(message)) throw std::runtime_error("checksum of a message");
    events.push_back(ParseEvent(message));
  }
  return events;
}

}  // namespace adaptive_train::test
