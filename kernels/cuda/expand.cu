// Puts values back in their places: a value's number is the count of bits set before its own.
#include "kernels/cuda/cuda_device.h"
#include "kernels/cuda/elements.h"
#include "kernels/cuda/reduce.h"
#include "kernels/cuda/tiles.h"

namespace adaptive_train::kernels::cuda {
namespace {

constexpr int kWord = 64;
constexpr int kTile = kThreads * kWord;  // elements: a word of the bitmap a thread

struct AddPass {
  std::int64_t count;
  const std::uint64_t* bitmap;
  const void* values;
  float* into;
};

template <class E>
__global__ void __launch_bounds__(kThreads) AddSelectedKernel(AddPass pass, Tiles tiles) {
  __shared__ std::int64_t tile;
  __shared__ Count before_tile;
  __shared__ unsigned place[kThreads / kWarp];
  __shared__ std::uint64_t words[kThreads];
  __shared__ unsigned before[kThreads];  // bits set in the tile before each word
  if (threadIdx.x == 0) tile = tiles.Take();
  __syncthreads();
  const std::int64_t word = tile * kThreads + threadIdx.x;
  words[threadIdx.x] = word * kWord < pass.count ? pass.bitmap[word] : 0;
  unsigned of_tile;
  before[threadIdx.x] =
      BeforeInBlock(static_cast<unsigned>(__popcll(words[threadIdx.x])), place, of_tile);
  if (threadIdx.x < kWarp) {
    const Count before_all = tiles.Before(tile, of_tile);
    if (threadIdx.x == 0) before_tile = before_all;
  }
  __syncthreads();
  const E* const values = static_cast<const E*>(pass.values) + before_tile;
  for (int at = static_cast<int>(threadIdx.x); at < kTile; at += kThreads) {
    const std::uint64_t bits = words[at / kWord];
    const int bit = at % kWord;
    if ((bits >> bit & 1) == 0) continue;
    const unsigned below = __popcll(bits & ((std::uint64_t{1} << bit) - 1));
    pass.into[tile * kTile + at] += Wide(values[before[at / kWord] + below]);
  }
}

}  // namespace

template <class T>
std::int64_t CudaDevice<T>::AddSelected(const AddSelectedArguments<T>& x) {
  stream_.Begin("AddSelected");
  if (x.count == 0) return 0;
  const std::int64_t tiles = Pieces(x.count, kTile);
  auto* const places = partial_.For<Count>(Tiles::Places(tiles));
  const Tiles states(tiles, places);
  Clear(places, static_cast<std::size_t>(Tiles::Places(tiles)) * sizeof(Count));
  const auto kernel =
      x.format == ValueFormat::kFloat32 ? AddSelectedKernel<float> : AddSelectedKernel<BFloat16>;
  Launch(stream_, static_cast<unsigned>(tiles), kThreads, 0, kernel,
         AddPass{x.count, x.bitmap, x.values, x.into}, states);
  Count all;
  CopyToHost(&all, states.End(), sizeof all);
  return Tiles::CountOf(all);
}

template std::int64_t CudaDevice<float>::AddSelected(const AddSelectedArguments<float>&);
template std::int64_t CudaDevice<BFloat16>::AddSelected(const AddSelectedArguments<BFloat16>&);
template std::int64_t CudaDevice<Float16>::AddSelected(const AddSelectedArguments<Float16>&);

}  // namespace adaptive_train::kernels::cuda
