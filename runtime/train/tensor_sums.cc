#include "runtime/train/tensor_sums.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <type_traits>
#include <utility>
#include <vector>

#include "runtime/train/collective.h"

namespace adaptive_train {

template <class T>
std::optional<SharedMemory> TensorSums<T>::MemoryOf(Group& group) {
  if (group.Size() == 1) return std::nullopt;
  const std::size_t slots = 2 * static_cast<std::size_t>(group.Size());
  auto memory = SharedMemory::Among(group, slots * kPiece * sizeof(float), CollectiveDeadline());
  if (!memory) Await(tl::unexpected(memory.error()));
  return std::move(*memory);
}

template <class T>
TensorSums<T>::TensorSums(Group& group, std::optional<SharedMemory> memory,
                          kernels::Device<T>& device, StepMeasure& measure)
    : group_(group), device_(device), measure_(measure), memory_(std::move(memory)) {
  if (std::is_same_v<T, float> || group.Size() == 1) return;
  sums_ = {device, kPiece};
  more_ = {device, kPiece};
}

template <class T>
TensorRanks<T> TensorSums<T>::Ranks() {
  return {{group_.Rank(), group_.Size()},
          [this](std::span<T> values) { Sum(values); },
          [this](std::span<float> values) { Sum(values); },
          &waited_s_,
          [this](std::span<std::byte> whole) { Gather(whole); }};
}

template <class T>
template <class E>
void TensorSums<T>::Sum(std::span<E> values) {
  const auto from = std::chrono::steady_clock::now();
  measure_.As(Activity::kExposedComm, [&] {
    for (std::size_t first = 0; first < values.size(); first += kPiece) {
      const auto piece = values.subspan(first, std::min(kPiece, values.size() - first));
      memory_ ? SumThroughMemory(piece) : SumThroughTransport(piece);
    }
  });
  waited_s_ += std::chrono::duration<double>(std::chrono::steady_clock::now() - from).count();
}

template <class T>
template <class E>
E* TensorSums<T>::SlotOf(int rank) const {
  const std::size_t slot =
      half_ * static_cast<std::size_t>(group_.Size()) + static_cast<std::size_t>(rank);
  return reinterpret_cast<E*>(memory_->bytes().data() + slot * kPiece * sizeof(float));
}

/// A rank that has met the others for this half has read all it wants of the other one, which is
/// then free to be written again.
template <class T>
template <class E>
void TensorSums<T>::SumThroughMemory(std::span<E> piece) {
  const auto count = static_cast<std::int64_t>(piece.size());
  std::copy(piece.begin(), piece.end(), SlotOf<E>(group_.Rank()));
  Meet();
  if constexpr (std::is_same_v<E, float>) {
    std::copy_n(SlotOf<float>(0), piece.size(), piece.data());
    for (int rank = 1; rank < group_.Size(); ++rank)
      device_.AddInto(count, SlotOf<float>(rank), piece.data());
  } else {
    device_.Widen(count, SlotOf<E>(0), sums_.data());
    for (int rank = 1; rank < group_.Size(); ++rank) {
      device_.Widen(count, SlotOf<E>(rank), more_.data());
      device_.AddInto(count, more_.data(), sums_.data());
    }
    device_.Round({.count = count, .parameters = sums_.data(), .weights = piece.data()});
  }
  half_ = 1 - half_;
}

/// Everything that a rank wrote before is there for all afterwards.
template <class T>
void TensorSums<T>::Meet() {
  std::atomic_thread_fence(std::memory_order_seq_cst);
  double nothing[1] = {};
  SumOverRanks(group_, nothing);
  std::atomic_thread_fence(std::memory_order_seq_cst);
}

template <class T>
template <class E>
void TensorSums<T>::SumThroughTransport(std::span<E> piece) {
  if constexpr (std::is_same_v<E, float>) {
    Await(group_.AllReduce(Purpose::kActivation, piece).Wait(CollectiveDeadline()));
  } else {
    const auto count = static_cast<std::int64_t>(piece.size());
    device_.Widen(count, piece.data(), sums_.data());
    SumThroughTransport(sums_.span().first(piece.size()));
    device_.Round({.count = count, .parameters = sums_.data(), .weights = piece.data()});
  }
}

/// The part of `whole` that a rank has.
template <class T>
std::span<std::byte> TensorSums<T>::PartOf(int rank, std::span<std::byte> whole) const {
  const TensorPart part{rank, group_.Size()};
  const ElementRange own = part.Of(static_cast<std::int64_t>(whole.size()));
  return whole.subspan(static_cast<std::size_t>(own.begin), static_cast<std::size_t>(own.size()));
}

template <class T>
void TensorSums<T>::Gather(std::span<std::byte> whole) {
  measure_.As(Activity::kExposedComm, [&] {
    if (memory_) return GatherThroughMemory(whole);
    std::vector<std::span<std::byte>> parts;
    for (int rank = 0; rank < group_.Size(); ++rank) parts.push_back(PartOf(rank, whole));
    Await(group_.AllGather(Purpose::kActivation, std::move(parts)).Wait(CollectiveDeadline()));
  });
}

template <class T>
void TensorSums<T>::GatherThroughMemory(std::span<std::byte> whole) {
  constexpr std::size_t kBytes = kPiece * sizeof(float);
  // Of all ranks, the last one's part is a largest one.
  const std::size_t largest = PartOf(group_.Size() - 1, whole).size();
  for (std::size_t first = 0; first < largest; first += kBytes) {
    const auto piece_of = [&](int rank) {
      const std::span<std::byte> part = PartOf(rank, whole);
      const std::size_t begin = std::min(first, part.size());
      return part.subspan(begin, std::min(kBytes, part.size() - begin));
    };
    std::ranges::copy(piece_of(group_.Rank()), SlotOf<std::byte>(group_.Rank()));
    Meet();
    for (int rank = 0; rank < group_.Size(); ++rank) {
      const std::span<std::byte> piece = piece_of(rank);
      if (rank != group_.Rank()) std::copy_n(SlotOf<std::byte>(rank), piece.size(), piece.data());
    }
    half_ = 1 - half_;
  }
}

template class TensorSums<float>;
template class TensorSums<kernels::BFloat16>;
template class TensorSums<kernels::Float16>;

}  // namespace adaptive_train
