// Selection with error feedback in one read of the gradients, and its threshold: bit for bit what a
// CPU sends. No multiplication and addition are fused: residuals must not depend on the processor.
#include "kernels/sparsify.h"

#include <bit>
#include <cmath>
#include <limits>

#include "kernels/cuda/cuda_device.h"
#include "kernels/cuda/elements.h"
#include "kernels/cuda/reduce.h"
#include "kernels/cuda/tiles.h"

namespace adaptive_train::kernels::cuda {
namespace {

constexpr unsigned kMagnitude = 0x7fffffff, kInfinity = 0x7f800000;
constexpr int kPerThread = 16;
constexpr int kTile = kThreads * kPerThread;  // elements

struct SelectPass {
  std::int64_t count;
  const float* gradients;
  float* residuals;
  float threshold, decay;
  unsigned smallest, largest;  // of kFloat8's sizes, as a float's bits
  unsigned* bitmap;            // in halves of its words
  void* values;
};

__device__ unsigned SizeBits(float value) { return __float_as_uint(value) & kMagnitude; }

/// e rounded to the format of the values. NaN is never sent, so its result does not matter.
template <ValueFormat kFormat>
__device__ float AsSent(float e, const SelectPass& pass) {
  const unsigned bits = __float_as_uint(e);
  if constexpr (kFormat == ValueFormat::kFloat32) {
    return e;
  } else if constexpr (kFormat == ValueFormat::kBFloat16) {
    return __uint_as_float((bits + 0x7fff + (bits >> 16 & 1)) & 0xffff0000);
  } else {
    const unsigned nearest = (SizeBits(e) + (1U << (kFloat8Shift - 1))) & (~0U << kFloat8Shift);
    const unsigned size = min(max(nearest, pass.smallest), pass.largest);
    return __uint_as_float(size | (bits & ~kMagnitude));
  }
}

template <ValueFormat kFormat>
__device__ void PutValue(void* values, Count at, float sent) {
  if constexpr (kFormat == ValueFormat::kFloat32)
    static_cast<float*>(values)[at] = sent;
  else
    static_cast<std::uint16_t*>(values)[at] =
        static_cast<std::uint16_t>(__float_as_uint(sent) >> 16);
}

/// Each warp has kPerThread runs of 32 elements in a row; a run's ballot is half a word of the bitmap.
template <bool kFeedback, ValueFormat kFormat>
__global__ void __launch_bounds__(kThreads) SelectKernel(SelectPass pass, Tiles tiles) {
  __shared__ std::int64_t tile;
  __shared__ Count before_tile;
  __shared__ unsigned place[kThreads / kWarp];
  if (threadIdx.x == 0) tile = tiles.Take();
  __syncthreads();
  const unsigned lane = threadIdx.x % kWarp;
  const std::int64_t first = tile * kTile + threadIdx.x / kWarp * (kWarp * kPerThread);
  const std::int64_t halves = (pass.count + 63) / 64 * 2;
  float gradients[kPerThread], residuals[kPerThread], sent[kPerThread];
  unsigned picked[kPerThread], of_warp = 0, largest = 0;
  // All is read before anything is written, so that the reads are under way together.
#pragma unroll
  for (int j = 0; j < kPerThread; ++j) {
    const std::int64_t i = first + j * kWarp + lane;
    gradients[j] = i < pass.count ? pass.gradients[i] : 0;
    residuals[j] = kFeedback && i < pass.count ? pass.residuals[i] : 0;
  }
#pragma unroll
  for (int j = 0; j < kPerThread; ++j) {
    const std::int64_t run = first + j * kWarp, i = run + lane;
    const bool inside = i < pass.count;
    const float old = residuals[j];
    const float e = kFeedback ? __fadd_rn(gradients[j], old) : gradients[j];
    const bool selected = inside && fabsf(e) >= pass.threshold;
    sent[j] = AsSent<kFormat>(e, pass);
    picked[j] = __ballot_sync(kAllLanes, selected);
    if (lane == 0 && run / kWarp < halves) pass.bitmap[run / kWarp] = picked[j];
    of_warp += __popc(picked[j]);
    largest = max(largest, SizeBits(e));
    if (kFeedback && inside) {
      const float unsent = __fsub_rn(e, selected ? sent[j] : 0);
      pass.residuals[i] = __fsub_rn(unsent, __fmul_rn(pass.decay, old));
    }
  }
  unsigned of_tile;
  const unsigned before = BeforeInBlock(lane == 0 ? of_warp : 0U, place, of_tile);
  if (threadIdx.x < kWarp) {
    const Count before_all = tiles.Before(tile, of_tile);
    if (threadIdx.x == 0) before_tile = before_all;
  }
  largest = OverBlock(largest, LargerBits(), place);  // and before_tile is there for all
  if (threadIdx.x == 0) atomicMax(tiles.Extra(), Count{largest});
  Count at = before_tile + __shfl_sync(kAllLanes, before, 0);
#pragma unroll
  for (int j = 0; j < kPerThread; ++j) {
    if ((picked[j] >> lane & 1) != 0)
      PutValue<kFormat>(pass.values, at + __popc(picked[j] & ((1U << lane) - 1)), sent[j]);
    at += __popc(picked[j]);
  }
}

template <ValueFormat kFormat>
void LaunchSelect(const Stream& stream, const SelectPass& pass, std::int64_t tiles,
                  const Tiles& states) {
  const auto kernel =
      pass.residuals != nullptr ? SelectKernel<true, kFormat> : SelectKernel<false, kFormat>;
  Launch(stream, static_cast<unsigned>(tiles), kThreads, 0, kernel, pass, states);
}

void LaunchSelect(const Stream& stream, ValueFormat format, const SelectPass& pass,
                  std::int64_t tiles, const Tiles& states) {
  switch (format) {
    case ValueFormat::kFloat32:
      return LaunchSelect<ValueFormat::kFloat32>(stream, pass, tiles, states);
    case ValueFormat::kInt4:
    case ValueFormat::kBFloat16:
      return LaunchSelect<ValueFormat::kBFloat16>(stream, pass, tiles, states);
    case ValueFormat::kFloat8:
      return LaunchSelect<ValueFormat::kFloat8>(stream, pass, tiles, states);
  }
}

/// The smallest float that is not below the threshold selects the same floats.
float FloatFrom(double threshold) {
  const auto nearest = static_cast<float>(threshold);
  if (static_cast<double>(nearest) >= threshold) return nearest;
  return std::nextafter(nearest, std::numeric_limits<float>::infinity());
}

/// The largest finite size that rounds to a finite value.
constexpr unsigned LargestSent(ValueFormat format) {
  return format == ValueFormat::kBFloat16 ? kInfinity - 0x8001 : kInfinity - 1;
}

/// A histogram has a bin for each exponent, or, of one exponent, for each leading 8 bits of fraction.
constexpr int kBins = 256, kExponentShift = 23, kFractionShift = 15;
static_assert(kBins == kThreads);

/// What is known of the threshold: its exponent's bin, then its fraction's; how many sizes lie above.
struct Search {
  unsigned exponent, fraction, above;
};

template <bool kFraction>
__global__ void __launch_bounds__(kThreads)
    CountSizes(std::int64_t count, const float* gradients, const float* residuals,
               const Search* search, unsigned* bins) {
  constexpr int kWarps = kThreads / kWarp;
  __shared__ unsigned of_warps[kWarps][kBins];
  for (int warp = 0; warp < kWarps; ++warp) of_warps[warp][threadIdx.x] = 0;
  __syncthreads();
  unsigned* const own = of_warps[threadIdx.x / kWarp];
  const std::int64_t step = std::int64_t{gridDim.x} * kThreads;
  for (std::int64_t i = std::int64_t{blockIdx.x} * kThreads + threadIdx.x; i < count; i += step) {
    const float e = residuals == nullptr ? gradients[i] : __fadd_rn(gradients[i], residuals[i]);
    const unsigned bits = SizeBits(e), size = bits > kInfinity ? 0 : bits;  // NaN has size 0
    if constexpr (!kFraction)
      atomicAdd(own + (size >> kExponentShift), 1U);
    else if (size >> kExponentShift == search->exponent)
      atomicAdd(own + (size >> kFractionShift & (kBins - 1)), 1U);
  }
  __syncthreads();
  unsigned sum = 0;
  for (int warp = 0; warp < kWarps; ++warp) sum += of_warps[warp][threadIdx.x];
  if (sum > 0) atomicAdd(bins + threadIdx.x, sum);
}

/// Finds the bin of the wanted-th largest size.
template <bool kFraction>
__global__ void __launch_bounds__(kThreads)
    FindBin(std::int64_t wanted, const unsigned* bins, Search* search) {
  __shared__ unsigned counts[kBins];
  counts[threadIdx.x] = bins[threadIdx.x];
  __syncthreads();
  if (threadIdx.x != 0) return;
  unsigned above = kFraction ? search->above : 0;
  unsigned bin = kBins - 1;
  for (; bin > 0 && std::int64_t{above} + counts[bin] < wanted; --bin) above += counts[bin];
  if constexpr (kFraction)
    search->fraction = bin;
  else
    *search = {bin, 0, above};
}

template <bool kFraction>
void SearchBins(const Stream& stream, const ThresholdArguments<float>& x, unsigned* bins,
                Search* search) {
  constexpr std::int64_t kMostBlocks = 2048;
  const auto blocks = static_cast<unsigned>(std::min(Pieces(x.count, kTile), kMostBlocks));
  Launch(stream, blocks, kThreads, 0, CountSizes<kFraction>, x.count, x.gradients, x.residuals,
         search, bins);
  Launch(stream, 1, kThreads, 0, FindBin<kFraction>, x.wanted, bins, search);
}

__global__ void __launch_bounds__(kThreads)
    LargestKernel(std::int64_t count, const float* gradients, const float* residuals,
                  unsigned* largest) {
  __shared__ unsigned place[kThreads / kWarp];
  unsigned mine = 0;
  const std::int64_t step = std::int64_t{gridDim.x} * kThreads;
  for (std::int64_t i = std::int64_t{blockIdx.x} * kThreads + threadIdx.x; i < count; i += step)
    mine = max(mine, SizeBits(residuals == nullptr ? gradients[i]
                                                   : __fadd_rn(gradients[i], residuals[i])));
  mine = OverBlock(mine, LargerBits(), place);
  if (threadIdx.x == 0) atomicMax(largest, mine);
}

}  // namespace

template <class T>
Selected CudaDevice<T>::Select(const SelectArguments<T>& x) {
  stream_.Begin("Select");
  if (x.count == 0) return {};
  const auto smallest = static_cast<unsigned>(SmallestSize(x.threshold));
  const SelectPass pass{x.count,
                        x.gradients,
                        x.residuals,
                        FloatFrom(x.threshold),
                        static_cast<float>(1 - x.keep),
                        smallest << kFloat8Shift,
                        (smallest + kFloat8Sizes - 1) << kFloat8Shift,
                        reinterpret_cast<unsigned*>(x.bitmap),
                        x.values};
  const std::int64_t tiles = Pieces(x.count, kTile);
  auto* const places = partial_.For<Count>(Tiles::Places(tiles));
  const Tiles states(tiles, places);
  Clear(places, static_cast<std::size_t>(Tiles::Places(tiles)) * sizeof(Count));
  LaunchSelect(stream_, x.format, pass, tiles, states);
  Count end[2];
  CopyToHost(end, states.End(), sizeof end);
  const auto largest = static_cast<unsigned>(end[1]);
  const bool sent = std::bit_cast<float>(largest) >= pass.threshold;
  return {Tiles::CountOf(end[0]),
          largest < kInfinity && (!sent || largest <= LargestSent(x.format))};
}

template <class T>
double CudaDevice<T>::Threshold(const ThresholdArguments<T>& x) {
  stream_.Begin("Threshold");
  if (x.wanted <= 0) return std::numeric_limits<double>::infinity();
  if (x.wanted >= x.count) return 0;
  const ThresholdArguments<float> floats{
      .count = x.count, .gradients = x.gradients, .residuals = x.residuals, .wanted = x.wanted};
  auto* const bins = partial_.For<unsigned>(2 * kBins + sizeof(Search) / sizeof(unsigned));
  auto* const search = reinterpret_cast<Search*>(bins + 2 * kBins);
  Clear(bins, 2 * kBins * sizeof(unsigned));
  SearchBins<false>(stream_, floats, bins, search);
  SearchBins<true>(stream_, floats, bins + kBins, search);
  Search found;
  CopyToHost(&found, search, sizeof found);
  return static_cast<double>(
      std::bit_cast<float>(found.exponent << kExponentShift | found.fraction << kFractionShift));
}

template <class T>
void CudaDevice<T>::Sample(const SampleArguments<T>& x) {
  stream_.Begin("Sample");
  ForElements(stream_, SampledOf(x.count), [x] __device__(std::int64_t k) {
    constexpr std::int64_t kLine = 16, kGroup = 256;
    const std::int64_t group = k / kLine;
    const auto hash = static_cast<std::uint64_t>(group) * 0x9e3779b97f4a7c15ULL;
    const std::int64_t i =
        group * kGroup + static_cast<std::int64_t>(hash >> 60) * kLine + k % kLine;
    x.sample[k] = __fadd_rn(x.gradients[i], x.residuals[i]);
  });
}

template <class T>
double CudaDevice<T>::Largest(std::int64_t count, const float* gradients, const float* residuals) {
  stream_.Begin("Largest");
  if (count == 0) return 0;
  constexpr std::int64_t kMostBlocks = 2048;
  auto* const largest = partial_.For<unsigned>(1);
  Clear(largest, sizeof(unsigned));
  const auto blocks = static_cast<unsigned>(std::min(Pieces(count, kTile), kMostBlocks));
  Launch(stream_, blocks, kThreads, 0, LargestKernel, count, gradients, residuals, largest);
  float size;
  CopyToHost(&size, largest, sizeof size);
  return size;
}

#define ADAPTIVE_TRAIN_CUDA_SELECTION(T)                                  \
  template Selected CudaDevice<T>::Select(const SelectArguments<T>&);     \
  template double CudaDevice<T>::Threshold(const ThresholdArguments<T>&); \
  template void CudaDevice<T>::Sample(const SampleArguments<T>&);         \
  template double CudaDevice<T>::Largest(std::int64_t, const float*, const float*);
ADAPTIVE_TRAIN_CUDA_SELECTION(float)
ADAPTIVE_TRAIN_CUDA_SELECTION(BFloat16)
ADAPTIVE_TRAIN_CUDA_SELECTION(Float16)
#undef ADAPTIVE_TRAIN_CUDA_SELECTION

}  // namespace adaptive_train::kernels::cuda
