// The GPU's memory, and its name.
#include "kernels/cuda/cuda_device.h"

#include <cuda_runtime.h>
#include <xxhash.h>

#include <memory>
#include <vector>

namespace adaptive_train::kernels::cuda {

namespace {

std::int64_t MemoryBytes(const Stream& stream) {
  std::size_t free = 0, whole = 0;
  stream.Check(cudaMemGetInfo(&free, &whole));
  return static_cast<std::int64_t>(whole);
}

}  // namespace

template <class T>
CudaDevice<T>::CudaDevice(int ordinal)
    : stream_(ordinal),
      products_(stream_),
      scratch_(stream_),
      partial_(stream_),
      memory_bytes_(MemoryBytes(stream_)) {}

template <class T>
std::string CudaDevice<T>::Description() const {
  cudaDeviceProp properties;
  stream_.Check(cudaGetDeviceProperties(&properties, stream_.ordinal()));
  return std::string(properties.name) + ", compute capability " + std::to_string(properties.major) +
         "." + std::to_string(properties.minor) + ", " + products_.Description();
}

template <class T>
void* CudaDevice<T>::Allocate(std::size_t bytes, bool) {
  stream_.Begin("allocating");
  return AllocateOn(stream_, bytes);
}

template <class T>
void CudaDevice<T>::Free(void* memory) noexcept {
  FreeOn(stream_, memory);
}

// The host's memory may be pinned, whose copy would still run on return.
template <class T>
void CudaDevice<T>::CopyFromHost(void* to, const void* from, std::size_t bytes) {
  if (bytes == 0) return;
  stream_.Begin("copying from the host");
  stream_.Check(cudaMemcpyAsync(to, from, bytes, cudaMemcpyHostToDevice, stream_.get()));
  stream_.Wait();
}

template <class T>
void CudaDevice<T>::CopyToHost(void* to, const void* from, std::size_t bytes) {
  if (bytes == 0) return;
  stream_.Begin("copying to the host");
  stream_.Check(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToHost, stream_.get()));
  stream_.Wait();
}

template <class T>
void CudaDevice<T>::CopyWithin(void* to, const void* from, std::size_t bytes) {
  if (bytes == 0) return;
  stream_.Begin("copying");
  stream_.Check(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToDevice, stream_.get()));
}

template <class T>
void CudaDevice<T>::Clear(void* memory, std::size_t bytes) {
  if (bytes == 0) return;
  stream_.Begin("clearing");
  stream_.Check(cudaMemsetAsync(memory, 0, bytes, stream_.get()));
}

template <class T>
void CudaDevice<T>::Wait() {
  stream_.Begin("waiting");
  stream_.Wait();
}

template <class T>
std::optional<std::int64_t> CudaDevice<T>::FreeBytes() const {
  std::size_t free = 0, whole = 0;
  stream_.Check(cudaMemGetInfo(&free, &whole));
  return static_cast<std::int64_t>(free);
}

template <class T>
std::uint64_t CudaDevice<T>::Hash(const void* memory, std::size_t bytes) {
  constexpr std::size_t kPiece = std::size_t{64} << 20;
  const std::unique_ptr<XXH3_state_t, XXH_errorcode (*)(XXH3_state_t*)> state(XXH3_createState(),
                                                                              XXH3_freeState);
  XXH3_64bits_reset(state.get());
  std::vector<std::byte> piece(std::min(bytes, kPiece));
  for (std::size_t at = 0; at < bytes; at += piece.size()) {
    const std::size_t size = std::min(piece.size(), bytes - at);
    CopyToHost(piece.data(), static_cast<const std::byte*>(memory) + at, size);
    XXH3_64bits_update(state.get(), piece.data(), size);
  }
  return XXH3_64bits_digest(state.get());
}

template class CudaDevice<float>;
template class CudaDevice<BFloat16>;
template class CudaDevice<Float16>;

}  // namespace adaptive_train::kernels::cuda
