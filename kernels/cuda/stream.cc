#include "kernels/cuda/stream.h"

#include <cuda_runtime.h>

#include "kernels/allocation_failure.h"

namespace adaptive_train::kernels::cuda {

Stream::Stream(int ordinal) : ordinal_(ordinal) {
  Begin(operation_);
  Check(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking));
}

Stream::~Stream() {
  cudaSetDevice(ordinal_);
  cudaStreamDestroy(stream_);
}

void Stream::Begin(const char* operation) {
  operation_ = operation;
  Check(cudaSetDevice(ordinal_));
}

void Stream::Fail(int error) const {
  const auto of_cuda = static_cast<cudaError_t>(error);
  throw CudaFailure(std::string("GPU, ") + operation_ + ": " + cudaGetErrorString(of_cuda) + " (" +
                    cudaGetErrorName(of_cuda) + ")");
}

void Stream::Wait() const { Check(cudaStreamSynchronize(stream_)); }

void* AllocateOn(const Stream& stream, std::size_t bytes) {
  if (bytes == 0) return nullptr;
  void* memory = nullptr;
  const cudaError_t error = cudaMalloc(&memory, bytes);
  if (error == cudaErrorMemoryAllocation) {
    cudaGetLastError();  // it would be reported again by the next launch
    throw AllocationFailure("work space on the GPU", bytes);
  }
  stream.Check(error);
  return memory;
}

// Destructors and what they call cannot report: a failure of the GPU shows at its next operation.
void FreeOn(const Stream& stream, void* memory) noexcept {
  if (memory == nullptr) return;
  cudaSetDevice(stream.ordinal());
  cudaStreamSynchronize(stream.get());
  cudaFree(memory);
}

Room::~Room() { FreeOn(stream_, memory_); }

void* Room::Bytes(std::size_t bytes) {
  if (size_ < bytes) {
    FreeOn(stream_, memory_);
    memory_ = nullptr;
    size_ = 0;
    memory_ = AllocateOn(stream_, bytes);
    size_ = bytes;
  }
  return memory_;
}

}  // namespace adaptive_train::kernels::cuda
