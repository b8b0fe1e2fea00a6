// How long selection with error feedback takes on one core, against a read-modify-write of the same
// arrays.
//
// selection_bench: 2^25 = 33.5 M floats of normal gradients and residuals, at densities .05, .10
// and .30. Select reads both (8 bytes an element), writes the residuals back (4), a bitmap (1/8)
// and the selected values in bfloat16 (2 times the density). The floor, residual = 0.9 residual +
// gradient, reads the same 8 bytes and writes the same 4. Threshold only reads the 8, and is exact.
// "rank" is what a rank of four really does: chunks of 2^18 elements, each with a threshold from
// one cache line in sixteen, then Select (runtime/exchange/gradient_selection.h). They take turns,
// the residuals are put back before each, untimed, so that the density stays; the medians of the
// thread's processor time count. The aim is a ratio of at most 1.5.
//
// Then all that a rank of four does with elements in 4 bits (kernels/int4.h): it packs all of its
// own with feedback, adds four quarters and packs the sum, and unpacks all sums. "copies" are of
// the gradients' bytes, for the planner (launcher/planner/compression.cc).
#include <fmt/core.h>

#include <algorithm>
#include <cstring>
#include <ctime>
#include <functional>
#include <vector>

#include "core/counter_random.h"
#include "kernels/cpu/cpu_device.h"
#include "kernels/int4.h"
#include "runtime/exchange/gradient_selection.h"

namespace adaptive_train {
namespace {

using kernels::BFloat16;
using kernels::Buffer;

constexpr std::int64_t kCount = std::int64_t{1} << 25;
constexpr int kRounds = 21;

using Device = kernels::cpu::CpuDevice<float>;

double Milliseconds() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return 1e3 * static_cast<double>(now.tv_sec) + 1e-6 * static_cast<double>(now.tv_nsec);
}

Buffer<float> Normals(Device& device, std::uint64_t seed) {
  const CounterRandom random(seed, RandomPurpose::kInitialization);
  Buffer<float> buffer(device, kCount);
  std::uint64_t block = 0;
  for (std::size_t i = 0; i < buffer.size(); ++block) {
    for (const float value : random.Normals({}, block)) {
      if (i < buffer.size()) buffer.data()[i++] = value;
    }
  }
  return buffer;
}

void ReadModifyWrite(const float* __restrict gradients, float* __restrict residuals) {
  for (std::int64_t i = 0; i < kCount; ++i) residuals[i] = residuals[i] * 0.9F + gradients[i];
}

void SelectAsRank(GradientSelection<float>& selection, double density) {
  constexpr std::size_t kChunk = std::size_t{1} << 18;
  for (std::size_t begin = 0; begin < kCount; begin += kChunk) {
    const GradientPiece piece{begin, begin + kChunk, true};
    selection.Select({piece.begin, piece.end, {piece}}, density, 1,
                     kernels::ValueFormat::kBFloat16);
  }
}

/// The medians of the times of all, which take turns.
std::vector<double> Medians(const std::vector<std::function<void()>>& all,
                            const std::function<void()>& before) {
  std::vector<std::vector<double>> times(all.size());
  for (int round = 0; round < kRounds; ++round) {
    for (std::size_t i = 0; i < all.size(); ++i) {
      before();
      const double start = Milliseconds();
      all[i]();
      times[i].push_back(Milliseconds() - start);
    }
  }
  std::vector<double> medians;
  for (std::vector<double>& of_one : times) {
    std::nth_element(of_one.begin(), of_one.begin() + kRounds / 2, of_one.end());
    medians.push_back(of_one[kRounds / 2]);
  }
  return medians;
}

void Run() {
  Device device(1);
  const Buffer<float> gradients = Normals(device, 1), before = Normals(device, 2);
  Buffer<float> residuals(device, kCount);
  Buffer<std::uint64_t> bitmap(device, kCount / 64);
  Buffer<BFloat16> values(device, kCount);
  const auto put_back = [&] {
    device.CopyWithin(residuals.data(), before.data(), residuals.bytes());
  };
  GradientSelection<float> rank(device, gradients.span(), residuals.span());
  fmt::print("{:>7} {:>9} {:>8} {:>9} {:>12} {:>8} {:>6} {:>16} {:>10}\n", "density", "selected",
             "rmw ms", "select ms", "threshold ms", "rank ms", "ratio", "threshold ratio",
             "rank ratio");
  for (const double density : {0.05, 0.10, 0.30}) {
    kernels::SelectArguments<float> select{.count = kCount,
                                           .gradients = gradients.data(),
                                           .residuals = residuals.data(),
                                           .bitmap = bitmap.data(),
                                           .values = values.data()};
    const kernels::ThresholdArguments<float> threshold{
        .count = kCount,
        .gradients = gradients.data(),
        .residuals = before.data(),
        .wanted = static_cast<std::int64_t>(density * static_cast<double>(kCount))};
    select.threshold = device.Threshold(threshold);
    std::int64_t selected = 0;
    const std::vector<double> ms =
        Medians({[&] { ReadModifyWrite(gradients.data(), residuals.data()); },
                 [&] { selected = device.Select(select).count; },
                 [&] { select.threshold = device.Threshold(threshold); },
                 [&] { SelectAsRank(rank, density); }},
                put_back);
    fmt::print(
        "{:>7.2f} {:>9.4f} {:>8.2f} {:>9.2f} {:>12.2f} {:>8.2f} {:>6.2f} {:>16.2f} {:>10.2f}\n",
        density, static_cast<double>(selected) / static_cast<double>(kCount), ms[0], ms[1], ms[2],
        ms[3], ms[1] / ms[0], ms[2] / ms[0], ms[3] / ms[0]);
  }
}

/// In chunks that stay in a cache, as messages do.
void RunInt4() {
  constexpr std::int64_t kChunk = std::int64_t{1} << 18, kRanks = 4;
  Device device(1);
  const Buffer<float> gradients = Normals(device, 1), before = Normals(device, 2);
  Buffer<float> residuals(device, kCount), sums(device, kCount);
  std::vector<std::byte> packed(kernels::Int4Bytes(kChunk));
  const auto for_chunks = [](const auto& body) {
    for (std::int64_t begin = 0; begin < kCount; begin += kChunk) body(begin);
  };
  const auto put_back = [&] {
    device.CopyWithin(residuals.data(), before.data(), residuals.bytes());
  };
  const std::vector<double> ms = Medians(
      {[&] { std::memcpy(sums.data(), gradients.data(), gradients.bytes()); },
       [&] {
         for_chunks([&](std::int64_t begin) {
           kernels::cpu::PackInt4({.count = kChunk,
                                   .gradients = gradients.data() + begin,
                                   .residuals = residuals.data() + begin,
                                   .packed = packed.data()});
         });
       },
       [&] {
         for_chunks([&](std::int64_t begin) {
           kernels::cpu::AddInt4(kChunk, packed.data(), sums.data() + begin / kRanks);
         });
       },
       [&] {
         for (std::int64_t begin = 0; begin < kCount / kRanks; begin += kChunk) {
           kernels::cpu::PackInt4(
               {.count = kChunk, .gradients = sums.data() + begin, .packed = packed.data()});
         }
       },
       [&] {
         for_chunks([&](std::int64_t begin) {
           kernels::cpu::UnpackInt4(kChunk, packed.data(), sums.data() + begin);
         });
       }},
      put_back);
  const double all = ms[1] + ms[2] + ms[3] + ms[4];
  fmt::print(
      "int4: copy {:.2f} ms, pack {:.2f}, add {:.2f}, pack sums {:.2f}, unpack {:.2f}: {:.1f} "
      "copies\n",
      ms[0], ms[1], ms[2], ms[3], ms[4], all / ms[0]);
}

}  // namespace
}  // namespace adaptive_train

int main() {
  adaptive_train::Run();
  adaptive_train::RunInt4();
}
