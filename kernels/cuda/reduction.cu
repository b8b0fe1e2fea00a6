// Sums over an array in double, in pieces that the count alone determines.
#include "kernels/cuda/cuda_device.h"
#include "kernels/cuda/elements.h"
#include "kernels/cuda/reduce.h"

namespace adaptive_train::kernels::cuda {
namespace {

constexpr std::int64_t kPiece = 16384;  // elements

template <bool kSquared>
__global__ void __launch_bounds__(kThreads)
    SumPiece(std::int64_t count, const float* values, double* partial) {
  __shared__ double place[kThreads / kWarp];
  const std::int64_t first = std::int64_t{blockIdx.x} * kPiece;
  const std::int64_t end = first + kPiece < count ? first + kPiece : count;
  double sum = 0;
  for (std::int64_t i = first + threadIdx.x; i < end; i += kThreads) {
    const double value = values[i];
    sum += kSquared ? value * value : value;
  }
  sum = OverBlock(sum, Plus(), place);
  if (threadIdx.x == 0) partial[blockIdx.x] = sum;
}

/// partial[0] becomes the sum of all.
__global__ void __launch_bounds__(kThreads) SumPieces(std::int64_t pieces, double* partial) {
  __shared__ double place[kThreads / kWarp];
  double sum = 0;
  for (std::int64_t i = threadIdx.x; i < pieces; i += kThreads) sum += partial[i];
  sum = OverBlock(sum, Plus(), place);
  if (threadIdx.x == 0) partial[0] = sum;
}

template <bool kSquared>
double SumOf(DeviceMemory& memory, const Stream& stream, Room& room, std::int64_t count,
             const float* values) {
  if (count == 0) return 0;
  const std::int64_t pieces = Pieces(count, kPiece);
  auto* const partial = room.For<double>(pieces);
  Launch(stream, static_cast<unsigned>(pieces), kThreads, 0, SumPiece<kSquared>, count, values,
         partial);
  Launch(stream, 1, kThreads, 0, SumPieces, pieces, partial);
  double sum;
  memory.CopyToHost(&sum, partial, sizeof sum);
  return sum;
}

}  // namespace

template <class T>
double CudaDevice<T>::Sum(std::int64_t count, const float* values) {
  stream_.Begin("Sum");
  return SumOf<false>(*this, stream_, partial_, count, values);
}

template <class T>
double CudaDevice<T>::SquaredNorm(std::int64_t count, const float* values) {
  stream_.Begin("SquaredNorm");
  return SumOf<true>(*this, stream_, partial_, count, values);
}

template double CudaDevice<float>::Sum(std::int64_t, const float*);
template double CudaDevice<BFloat16>::Sum(std::int64_t, const float*);
template double CudaDevice<Float16>::Sum(std::int64_t, const float*);
template double CudaDevice<float>::SquaredNorm(std::int64_t, const float*);
template double CudaDevice<BFloat16>::SquaredNorm(std::int64_t, const float*);
template double CudaDevice<Float16>::SquaredNorm(std::int64_t, const float*);

}  // namespace adaptive_train::kernels::cuda
