// How short sparse messages are and what a core pays for them.
//
// sparse_message_bench [ROUNDS]: a chunk of 262144 elements at random places, bfloat16 values. Bits
// per parameter of the whole message, beside the entropy of the places plus 16 bits per value; the
// best time of each of writing, reading (all checks) and adding, in nanoseconds of the processor
// per element sent. The floor of adding is the same sum with all places known: `scatter`.
#include <time.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <random>
#include <vector>

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

Selection Select(double density) {
  std::mt19937_64 engine(7);
  std::bernoulli_distribution selected(density);
  std::normal_distribution<float> normal;
  Selection selection;
  for (std::size_t i = 0; i < kLength; ++i) {
    if (!selected(engine)) continue;
    selection.bitmap[i / 64] |= std::uint64_t{1} << i % 64;
    selection.places.push_back(static_cast<std::uint32_t>(i));
    selection.values.push_back(kernels::ToBFloat16(normal(engine)));
  }
  return selection;
}

void Run(double density, int rounds) {
  const Selection selection = Select(density);
  const auto count = static_cast<std::int64_t>(selection.places.size());
  const std::vector<std::int64_t> pieces{kLength};
  SparseMessageWriter writer(1, ValueFormat::kBFloat16);
  std::vector<std::byte> bytes;
  const double write = BestNanoseconds(rounds, [&] {
    writer.Add(kLength, selection.bitmap.data(), count, selection.values.data());
    bytes = writer.Finish();
  });
  const auto read_message = [&] {
    return SparseMessage::Read(bytes, 1, ValueFormat::kBFloat16, pieces);
  };
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
  std::printf("%7.4f %8.3f %8.3f %8.2f %8.2f %8.2f %8.2f %8.2f\n", each / kLength,
              8.0 * static_cast<double>(bytes.size()) / kLength,
              EntropyBits(each / kLength) + 16 * each / kLength, write / each, read / each,
              add / each, put / each, scatter / each);
}

}  // namespace
}  // namespace adaptive_train

int main(int argc, char** argv) {
  const int rounds = argc > 1 ? std::max(1, std::atoi(argv[1])) : 200;
  std::printf("%7s %8s %8s %8s %8s %8s %8s %8s\n", "density", "bits", "entropy", "write ns",
              "read ns", "add ns", "put ns", "scatter");
  for (const double density : {0.30, 0.10, 0.05, 0.0125}) adaptive_train::Run(density, rounds);
}
