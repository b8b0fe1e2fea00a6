// Sparse messages, as they come and with a checksum that is made right: what is believed stays
// within the chunk, and written again it is read as the same.
#include "runtime/compress/sparse_message.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <random>

#include "kernels/int4.h"
#include "kernels/scalar.h"
#include "tests/fuzz/fuzz.h"

namespace adaptive_train::fuzz {
namespace {

constexpr std::int64_t kLengths[] = {200, 0, 65, 1, 9, 128, 7};
constexpr std::uint32_t kBucket = 3;
constexpr ValueFormat kFormats[] = {ValueFormat::kFloat32, ValueFormat::kBFloat16,
                                    ValueFormat::kFloat8, ValueFormat::kInt4};
constexpr std::size_t kPayloadBytesAt = 16, kChecksumAt = 24;

struct Chunk {
  std::vector<float> values;
  std::vector<std::uint64_t> bitmaps;
};

Chunk EmptyChunk() {
  Chunk chunk;
  for (const std::int64_t length : kLengths) {
    chunk.values.resize(chunk.values.size() + static_cast<std::size_t>(length));
    chunk.bitmaps.resize(chunk.bitmaps.size() + BitmapWords(length));
  }
  return chunk;
}

MessageBytes Write(const Chunk& chunk, ValueFormat format, int smallest = 0) {
  SparseMessageWriter writer(kBucket, format);
  const float* values = chunk.values.data();
  const std::uint64_t* bitmap = chunk.bitmaps.data();
  for (const std::int64_t length : kLengths) {
    std::vector<float> sent;
    std::vector<kernels::BFloat16> rounded;
    for (std::size_t i = 0; i < BitmapWords(length); ++i) {
      ForEachBit(bitmap[i], 64 * i, [&](std::size_t place) {
        Require(place < static_cast<std::size_t>(length));
        sent.push_back(values[place]);
        rounded.push_back(kernels::ToBFloat16(values[place]));
      });
    }
    const bool wide = format == ValueFormat::kFloat32;
    writer.Add(length, bitmap, static_cast<std::int64_t>(sent.size()),
               wide ? static_cast<const void*>(sent.data()) : rounded.data(), smallest);
    values += length;
    bitmap += BitmapWords(length);
  }
  return writer.Finish();
}

void ReadAll(const MessageBytes& bytes, ValueFormat format) {
  const auto message = SparseMessage::Read(bytes, kBucket, format, kLengths);
  if (!message) return Require(!message.error().message.empty());
  Require(bytes.size() <= MaxMessageBytes(kLengths, format));
  Chunk sum = EmptyChunk(), written = EmptyChunk();
  message->AddTo(sum.values, sum.bitmaps);
  message->WriteTo(written.values);
  Require(sum.values == written.values);
  std::int64_t marked = 0;
  for (const std::uint64_t word : sum.bitmaps) marked += std::popcount(word);
  Require(marked == message->count());
  Require(std::all_of(written.values.begin(), written.values.end(),
                      [](float value) { return std::isfinite(value); }));
  // A packed element is no bfloat16: what was read is not written again in the same way.
  if (format == ValueFormat::kInt4) return;
  const auto again = Write(sum, format);
  const auto reread = SparseMessage::Read(again, kBucket, format, kLengths);
  Require(reread && reread->count() == message->count());
  reread->WriteTo(sum.values);
  Require(sum.values == written.values);
}

/// Pieces in 4 bits, where they are long enough.
MessageBytes Packed(SparseMessageWriter::Lossless lossless) {
  SparseMessageWriter writer(kBucket, ValueFormat::kInt4);
  for (const std::int64_t length : kLengths) {
    std::vector<float> values(static_cast<std::size_t>(length));
    for (std::size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i % 9) - 4;
    std::vector<std::byte> packed(kernels::Int4Bytes(length));
    kernels::cpu::PackInt4({.count = length, .gradients = values.data(), .packed = packed.data()});
    writer.Add(length, nullptr, length, packed.data(), kPackedWhole);
  }
  return writer.Finish(lossless);
}

void Seal(MessageBytes& bytes) {
  const std::uint64_t checksum = MessageChecksum(bytes);
  std::memcpy(bytes.data() + kChecksumAt, &checksum, sizeof checksum);
}

}  // namespace

void FuzzOne(std::string_view input) {
  const auto* data = reinterpret_cast<const std::byte*>(input.data());
  for (const ValueFormat format : kFormats) {
    MessageBytes bytes(data, data + input.size());
    ReadAll(bytes, format);
    if (bytes.size() < kMessageHeaderBytes) continue;
    Seal(bytes);
    ReadAll(bytes, format);
    const std::uint64_t payload_bytes = bytes.size() - kMessageHeaderBytes;
    std::memcpy(bytes.data() + kPayloadBytesAt, &payload_bytes, sizeof payload_bytes);
    Seal(bytes);
    ReadAll(bytes, format);
  }
}

std::vector<std::string> FuzzSeeds() {
  std::mt19937_64 engine(1);
  std::vector<std::string> seeds;
  const auto add = [&seeds](const MessageBytes& bytes) {
    seeds.emplace_back(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  };
  for (const ValueFormat format : kFormats) {
    for (const double density : {0.0, 0.03, 0.1, 0.5, 0.9, 1.0}) {
      std::bernoulli_distribution selected(density);
      Chunk chunk = EmptyChunk();
      std::size_t word = 0;
      for (const std::int64_t length : kLengths) {
        for (std::size_t i = 0; i < static_cast<std::size_t>(length); ++i)
          if (selected(engine)) chunk.bitmaps[word + i / 64] |= std::uint64_t{1} << i % 64;
        word += BitmapWords(length);
      }
      for (float& value : chunk.values) value = static_cast<float>(engine() % 1000) - 500;
      add(Write(chunk, format));
      if (format != ValueFormat::kFloat8) continue;
      for (const unsigned octaves : {2, 4, 30}) {  // codes of 5, 6 and 8 bits
        for (float& value : chunk.values)
          value = std::ldexp(value < 0 ? -1.25F : 1.75F, static_cast<int>(engine() % octaves) - 2);
        add(Write(chunk, format, 500));
      }
    }
    if (format == ValueFormat::kInt4) {
      add(Packed(SparseMessageWriter::Lossless::kNone));
      const MessageBytes shorter = Packed(SparseMessageWriter::Lossless::kZstd);
      Require(shorter.size() < Packed(SparseMessageWriter::Lossless::kNone).size());
      add(shorter);
    }
    SparseMessageWriter writer(kBucket, format);
    writer.NotFinite();
    add(writer.Finish());
  }
  return seeds;
}

}  // namespace adaptive_train::fuzz
