// The size of sparse messages, and their cost for a core.
//
// sparse_message_bench [ROUNDS]: a chunk of 262144 elements at random places, with values of 16
// bits (bfloat16) and of 8 (float8), normally distributed from half their deviation on. Prints bits
// per parameter of the whole message, beside the entropy of the places plus the values' bits (codes
// of sizes take fewer). Also prints the best processor time in nanoseconds per sent element of
// writing, reading (all checks) and adding. The floor of adding is the same sum with all places
// known: `scatter`. Two more lines are of all elements in four bits, as they are and through zstd;
// the entropy there is that of the numbers and their scales.
#include <time.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <random>
#include <vector>

#include "kernels/int4.h"
#include "kernels/scalar.h"
#include "runtime/compress/sparse_message.h"

namespace adaptive_train {
namespace {

constexpr std::int64_t kLength = 262144;

double Now() {
  timespec time{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) * 1e9 + static_cast<double>(time.tv_nsec);
}

double BestNanoseconds(int rounds, const std::function<void()>& work) {
  double best = 1e18;
  for (int round = 0; round < rounds; ++round) {
    const double start = Now();
    work();
    best = std::min(best, Now() - start);
  }
  return best;
}

double EntropyBits(double density) {
  return -density * std::log2(density) - (1 - density) * std::log2(1 - density);
}

struct Selection {
  std::vector<std::uint64_t> bitmap = std::vector<std::uint64_t>(BitmapWords(kLength));
  std::vector<std::uint32_t> places;
  std::vector<kernels::BFloat16> values;
};

constexpr float kThreshold = 0.5;
constexpr int kSmallest = kernels::NearestSize(kThreshold);

Selection Select(double density, ValueFormat format) {
  std::mt19937_64 engine(7);
  std::bernoulli_distribution selected(density);
  std::normal_distribution<float> normal;
  Selection selection;
  for (std::size_t i = 0; i < kLength; ++i) {
    if (!selected(engine)) continue;
    selection.bitmap[i / 64] |= std::uint64_t{1} << i % 64;
    selection.places.push_back(static_cast<std::uint32_t>(i));
    float value = 0;
    while (std::abs(value) < kThreshold) value = normal(engine);
    const auto size = static_cast<std::uint32_t>(kernels::NearestSize(value));
    const auto rounded = std::bit_cast<float>(size << kernels::kFloat8Shift);
    selection.values.push_back(kernels::ToBFloat16(
        format == ValueFormat::kFloat8 ? std::copysign(rounded, value) : value));
  }
  return selection;
}

void Run(double density, ValueFormat format, int rounds) {
  const Selection selection = Select(density, format);
  const int bits = format == ValueFormat::kFloat8 ? 8 : 16;
  const int smallest = format == ValueFormat::kFloat8 ? kSmallest : 0;
  const auto count = static_cast<std::int64_t>(selection.places.size());
  const std::vector<std::int64_t> pieces{kLength};
  SparseMessageWriter writer(1, format);
  MessageBytes bytes;
  const double write = BestNanoseconds(rounds, [&] {
    writer.Add(kLength, selection.bitmap.data(), count, selection.values.data(), smallest);
    bytes = writer.Finish();
  });
  const auto read_message = [&] { return SparseMessage::Read(bytes, 1, format, pieces); };
  const double read = BestNanoseconds(rounds, [&] {
    if (!read_message()) std::abort();
  });
  const auto message = read_message();
  std::vector<float> sum(kLength);
  std::vector<std::uint64_t> marks(selection.bitmap.size());
  const double add = BestNanoseconds(rounds, [&] { message->AddTo(sum, marks); });
  const double put = BestNanoseconds(rounds, [&] { message->WriteTo(sum); });
  const double scatter = BestNanoseconds(rounds, [&] {
    for (std::size_t i = 0; i < selection.places.size(); ++i)
      sum[selection.places[i]] += kernels::ToFloat(selection.values[i]);
  });
  const auto each = static_cast<double>(count);
  std::printf("%6d %7.4f %8.3f %8.3f %8.2f %8.2f %8.2f %8.2f %8.2f\n", bits, each / kLength,
              8.0 * static_cast<double>(bytes.size()) / kLength,
              EntropyBits(each / kLength) + bits * each / kLength, write / each, read / each,
              add / each, put / each, scatter / each);
}

/// All elements in four bits.
void RunPacked(SparseMessageWriter::Lossless lossless, int rounds) {
  std::mt19937_64 engine(7);
  std::normal_distribution<float> normal;
  std::vector<float> values(kLength), sum(kLength);
  for (float& value : values) value = normal(engine);
  std::vector<std::byte> packed(kernels::Int4Bytes(kLength));
  kernels::cpu::PackInt4({.count = kLength, .gradients = values.data(), .packed = packed.data()});
  double numbers[16] = {}, entropy = 16.0 / kernels::kInt4Block;
  const std::size_t block = kernels::Int4Bytes(kernels::kInt4Block);
  for (std::size_t i = 0; i < packed.size(); ++i) {
    if (i % block < 2) continue;  // scales
    ++numbers[static_cast<unsigned>(packed[i]) & 15U];
    ++numbers[static_cast<unsigned>(packed[i]) >> 4];
  }
  for (const double number : numbers)
    if (number > 0) entropy -= number / kLength * std::log2(number / kLength);
  SparseMessageWriter writer(1, ValueFormat::kInt4);
  MessageBytes bytes;
  const double write = BestNanoseconds(rounds, [&] {
    writer.Add(kLength, nullptr, kLength, packed.data(), kPackedWhole);
    bytes = writer.Finish(lossless);
  });
  const auto read_message = [&] {
    return SparseMessage::Read(bytes, 1, ValueFormat::kInt4, {&kLength, 1});
  };
  const double read = BestNanoseconds(rounds, [&] {
    if (!read_message()) std::abort();
  });
  const auto message = read_message();
  std::vector<std::uint64_t> marks(BitmapWords(kLength));
  const double add = BestNanoseconds(rounds, [&] { message->AddTo(sum, marks); });
  const double put = BestNanoseconds(rounds, [&] { message->WriteTo(sum); });
  const double each = kLength;
  std::printf("%6s %7.4f %8.3f %8.3f %8.2f %8.2f %8.2f %8.2f %8s\n",
              lossless == SparseMessageWriter::Lossless::kZstd ? "4 zstd" : "4", 1.0,
              8.0 * static_cast<double>(bytes.size()) / kLength, entropy, write / each, read / each,
              add / each, put / each, "-");
}

}  // namespace
}  // namespace adaptive_train

int main(int argc, char** argv) {
  const int rounds = argc > 1 ? std::max(1, std::atoi(argv[1])) : 200;
  std::printf("%6s %7s %8s %8s %8s %8s %8s %8s %8s\n", "values", "density", "bits", "entropy",
              "write ns", "read ns", "add ns", "put ns", "scatter");
  for (const auto format :
       {adaptive_train::ValueFormat::kBFloat16, adaptive_train::ValueFormat::kFloat8}) {
    for (const double density : {0.50, 0.30, 0.10, 0.05, 0.0125})
      adaptive_train::Run(density, format, rounds);
  }
  for (const auto lossless : {adaptive_train::SparseMessageWriter::Lossless::kNone,
                              adaptive_train::SparseMessageWriter::Lossless::kZstd})
    adaptive_train::RunPacked(lossless, rounds);
}
