// A device whose memory the host cannot touch but through the device, as with a GPU's: any other
// access ends the process.
#pragma once

#include <sys/mman.h>

#include <cstddef>
#include <cstdint>
#include <new>
#include <span>
#include <string>

#include "kernels/device.h"

namespace adaptive_train::kernels {

/// Computes by another device, which is in host memory. Its own memory is open during a call alone;
/// it is all given back at the end. Calls may not be nested.
template <class T>
class GuardedDevice final : public Device<T> {
 public:
  explicit GuardedDevice(Device<T>& inner)
      : inner_(inner), memory_(::mmap(nullptr, kBytes, PROT_NONE, kPrivate, -1, 0)) {
    if (memory_ == MAP_FAILED) throw std::bad_alloc();
  }
  ~GuardedDevice() override { ::munmap(memory_, kBytes); }
  GuardedDevice(const GuardedDevice&) = delete;
  GuardedDevice& operator=(const GuardedDevice&) = delete;

  std::string Description() const override { return "guarded " + inner_.Description(); }
  bool OnHost() const override { return false; }
  void Wait() override { inner_.Wait(); }
  std::optional<std::int64_t> FreeBytes() const override { return inner_.FreeBytes(); }
  void* Allocate(std::size_t bytes, bool /*sparse*/) override {
    if (bytes == 0) return nullptr;
    std::byte* const begin = static_cast<std::byte*>(memory_) + used_;
    used_ += (bytes + kPage - 1) / kPage * kPage;
    if (used_ > kBytes) throw std::bad_alloc();
    return begin;
  }
  void Free(void* /*memory*/) noexcept override {}
  void CopyFromHost(void* to, const void* from, std::size_t bytes) override {
    const Open open(*this);
    inner_.CopyFromHost(to, from, bytes);
  }
  void CopyToHost(void* to, const void* from, std::size_t bytes) override {
    const Open open(*this);
    inner_.CopyToHost(to, from, bytes);
  }
  void GatherToHost(std::span<float> to, const float* from,
                    std::span<const std::size_t> places) override {
    const Open open(*this);
    inner_.GatherToHost(to, from, places);
  }
  void CopyWithin(void* to, const void* from, std::size_t bytes) override {
    const Open open(*this);
    inner_.CopyWithin(to, from, bytes);
  }
  void Clear(void* memory, std::size_t bytes) override {
    const Open open(*this);
    inner_.Clear(memory, bytes);
  }
  void Release(void* memory, std::size_t bytes) override { Clear(memory, bytes); }

  void Matmul(const MatmulArguments<T>& x) override {
    const Open open(*this);
    inner_.Matmul(x);
  }
  void WeightGradient(const WeightGradientArguments<T>& x) override {
    const Open open(*this);
    inner_.WeightGradient(x);
  }
  void LayerNorm(const NormArguments<T>& x) override {
    const Open open(*this);
    inner_.LayerNorm(x);
  }
  void LayerNormBackward(const NormBackwardArguments<T>& x) override {
    const Open open(*this);
    inner_.LayerNormBackward(x);
  }
  void RmsNorm(const NormArguments<T>& x) override {
    const Open open(*this);
    inner_.RmsNorm(x);
  }
  void RmsNormBackward(const NormBackwardArguments<T>& x) override {
    const Open open(*this);
    inner_.RmsNormBackward(x);
  }
  void Gelu(const GeluArguments<T>& x) override {
    const Open open(*this);
    inner_.Gelu(x);
  }
  void GeluBackward(const GeluBackwardArguments<T>& x) override {
    const Open open(*this);
    inner_.GeluBackward(x);
  }
  void Swiglu(const SwigluArguments<T>& x) override {
    const Open open(*this);
    inner_.Swiglu(x);
  }
  void SwigluBackward(const SwigluBackwardArguments<T>& x) override {
    const Open open(*this);
    inner_.SwigluBackward(x);
  }
  void Rope(const RopeArguments<T>& x) override {
    const Open open(*this);
    inner_.Rope(x);
  }
  void Attention(const AttentionArguments<T>& x) override {
    const Open open(*this);
    inner_.Attention(x);
  }
  void AttentionBackward(const AttentionBackwardArguments<T>& x) override {
    const Open open(*this);
    inner_.AttentionBackward(x);
  }
  void Embedding(const EmbeddingArguments<T>& x) override {
    const Open open(*this);
    inner_.Embedding(x);
  }
  void EmbeddingBackward(const EmbeddingBackwardArguments<T>& x) override {
    const Open open(*this);
    inner_.EmbeddingBackward(x);
  }
  void HeadLoss(const HeadLossArguments<T>& x) override {
    const Open open(*this);
    inner_.HeadLoss(x);
  }
  void Dropout(const DropoutArguments<T>& x) override {
    const Open open(*this);
    inner_.Dropout(x);
  }
  void AdamW(const AdamWArguments<T>& x) override {
    const Open open(*this);
    inner_.AdamW(x);
  }
  void Round(const RoundArguments<T>& x) override {
    const Open open(*this);
    inner_.Round(x);
  }
  void Sample(const SampleArguments<T>& x) override {
    const Open open(*this);
    inner_.Sample(x);
  }
  Selected Select(const SelectArguments<T>& x) override {
    const Open open(*this);
    return inner_.Select(x);
  }
  double Threshold(const ThresholdArguments<T>& x) override {
    const Open open(*this);
    return inner_.Threshold(x);
  }
  std::int64_t AddSelected(const AddSelectedArguments<T>& x) override {
    const Open open(*this);
    return inner_.AddSelected(x);
  }
  void Widen(std::int64_t count, const T* values, Accumulator<T>* sums) override {
    const Open open(*this);
    inner_.Widen(count, values, sums);
  }
  double Sum(std::int64_t count, const Accumulator<T>* values) override {
    const Open open(*this);
    return inner_.Sum(count, values);
  }
  double SquaredNorm(std::int64_t count, const Accumulator<T>* values) override {
    const Open open(*this);
    return inner_.SquaredNorm(count, values);
  }
  void AddInto(std::int64_t count, const Accumulator<T>* from, Accumulator<T>* into) override {
    const Open open(*this);
    inner_.AddInto(count, from, into);
  }
  void AddDifference(std::int64_t count, const Accumulator<T>* more, const Accumulator<T>* less,
                     Accumulator<T>* into) override {
    const Open open(*this);
    inner_.AddDifference(count, more, less, into);
  }
  void Scale(std::int64_t count, Accumulator<T> factor, Accumulator<T>* values) override {
    const Open open(*this);
    inner_.Scale(count, factor, values);
  }
  void ClearNotFinite(std::int64_t count, Accumulator<T>* values) override {
    const Open open(*this);
    inner_.ClearNotFinite(count, values);
  }
  std::uint64_t Hash(const void* memory, std::size_t bytes) override {
    const Open open(*this);
    return inner_.Hash(memory, bytes);
  }
  void PackInt8(std::int64_t count, const Accumulator<T>* values, std::byte* packed) override {
    const Open open(*this);
    inner_.PackInt8(count, values, packed);
  }
  void UnpackInt8(std::int64_t count, const std::byte* packed, T* values) override {
    const Open open(*this);
    inner_.UnpackInt8(count, packed, values);
  }
  double Largest(std::int64_t count, const Accumulator<T>* gradients,
                 const Accumulator<T>* residuals) override {
    const Open open(*this);
    return inner_.Largest(count, gradients, residuals);
  }

 private:
  static constexpr std::size_t kBytes = std::size_t{1} << 30, kPage = std::size_t{1} << 16;
  static constexpr int kPrivate = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;

  struct Open {
    explicit Open(GuardedDevice& device) : device_(device) {
      device.Protect(PROT_READ | PROT_WRITE);
    }
    ~Open() { device_.Protect(PROT_NONE); }
    Open(const Open&) = delete;
    Open& operator=(const Open&) = delete;

   private:
    GuardedDevice& device_;
  };
  void Protect(int protection) { ::mprotect(memory_, used_, protection); }

  Device<T>& inner_;
  void* const memory_;
  std::size_t used_ = 0;
};

}  // namespace adaptive_train::kernels
