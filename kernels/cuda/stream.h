// A GPU's queue of work, and what goes wrong on it.
#pragma once

#include <cstddef>
#include <stdexcept>
#include <string>

struct CUstream_st;  // CUDA's own name of what a cudaStream_t points to

namespace adaptive_train::kernels::cuda {

/// A call to CUDA that failed. A kernel's fault shows at a later call than the one that started it.
class CudaFailure : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// One stream of one GPU: its work runs in the order of the calls, beside the host. One thread calls
/// at a time. All calls throw CudaFailure.
class Stream {
 public:
  explicit Stream(int ordinal);
  ~Stream();
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;

  /// Makes the GPU the calling thread's, and names the operation for errors. Each operation of a
  /// device begins with it.
  void Begin(const char* operation);
  /// Throws if the call failed, with the operation's name and CUDA's words. Error is cudaError_t: who
  /// includes this file need not have CUDA's headers.
  template <class Error>
  void Check(Error error) const {
    if (error != Error{}) Fail(static_cast<int>(error));
  }
  /// Returns when all work is done.
  void Wait() const;

  CUstream_st* get() const { return stream_; }
  int ordinal() const { return ordinal_; }
  const char* operation() const { return operation_; }

 private:
  [[noreturn]] void Fail(int error) const;

  const int ordinal_;
  const char* operation_ = "opening the GPU";
  CUstream_st* stream_ = nullptr;
};

/// Memory of a GPU that grows and is used again by the stream's next operation: the stream's order
/// keeps one's use apart from the other's.
class Room {
 public:
  explicit Room(const Stream& stream) : stream_(stream) {}
  ~Room();
  Room(const Room&) = delete;
  Room& operator=(const Room&) = delete;

  /// Room for `count` elements, uninitialised, until the next call. Throws AllocationFailure.
  template <class E>
  E* For(std::int64_t count) {
    return static_cast<E*>(Bytes(static_cast<std::size_t>(count) * sizeof(E)));
  }

 private:
  void* Bytes(std::size_t bytes);

  const Stream& stream_;
  void* memory_ = nullptr;
  std::size_t size_ = 0;
};

/// Memory of the stream's GPU; nullptr for 0 bytes. Throws AllocationFailure.
void* AllocateOn(const Stream& stream, std::size_t bytes);
/// Gives it back once the stream's work is done.
void FreeOn(const Stream& stream, void* memory) noexcept;

}  // namespace adaptive_train::kernels::cuda
