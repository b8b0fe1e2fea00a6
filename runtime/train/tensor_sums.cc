#include "runtime/train/tensor_sums.h"

#include <algorithm>
#include <atomic>
#include <cassert>
#include <chrono>
#include <type_traits>
#include <utility>
#include <vector>

#include "runtime/comm/collective.h"

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
                          kernels::Device<T>& device, StepMeasure& measure, bool reproducible)
    : group_(group),
      device_(device),
      measure_(measure),
      memory_(std::move(memory)),
      reproducible_(reproducible) {
  if (group.Size() == 1) return;
  const auto ranks = static_cast<std::size_t>(group.Size());
  if (!memory_) gathered_ = {host_, ranks * kPiece};
  if (reproducible)
    tree_ = {device, static_cast<std::size_t>(kernels::TreeDepth(group.Size())) * kPiece};
  if (std::is_same_v<T, float>) return;
  sums_ = {device, kPiece};
  more_ = {device, kPiece};
}

template <class T>
TensorRanks<T> TensorSums<T>::Ranks() {
  return {{group_.Rank(), group_.Size()},
          [this](std::span<T> values) { Sum(values); },
          [this](std::span<float> values) { SumOnHost(values); },
          &waited_s_,
          [this](std::span<std::byte> whole, std::size_t piece) { Gather(whole, piece); },
          [this](const SharedHead<T>& head) { GatherHead(head); },
          [this](const SharedHead<T>& head) { SumHead(head); },
          [this](const SharedRows<T>& rows) { SumRows(rows); },
          [this](std::span<float> gradients) { Sum(gradients); }};
}

/// The time is the exchange's, and none of a layer's.
template <class T>
template <class Body>
void TensorSums<T>::Booked(const Body& body) {
  const auto from = std::chrono::steady_clock::now();
  measure_.As(Activity::kExposedComm, body);
  waited_s_ += std::chrono::duration<double>(std::chrono::steady_clock::now() - from).count();
}

/// What the device has to compute before is not the exchange's.
template <class T>
template <class Body>
void TensorSums<T>::Timed(const Body& body) {
  device_.Wait();
  Booked(body);
}

template <class T>
template <class E>
void TensorSums<T>::Sum(std::span<E> values) {
  Timed([&] {
    for (std::size_t first = 0; first < values.size(); first += kPiece) {
      const auto piece = values.subspan(first, std::min(kPiece, values.size() - first));
      memory_ ? SumOfSlots(piece) : SumThroughTransport(piece);
    }
  });
}

/// May be called from within an operation of the device, which must not begin another one.
template <class T>
void TensorSums<T>::SumOnHost(std::span<float> values) {
  if (device_.OnHost()) return Sum(values);
  assert(!reproducible_);
  Booked([&] {
    for (std::size_t first = 0; first < values.size(); first += kPiece) {
      const auto piece = values.subspan(first, std::min(kPiece, values.size() - first));
      const auto add = [&] {
        std::copy_n(SlotOf<float>(0), piece.size(), piece.data());
        for (int rank = 1; rank < group_.Size(); ++rank)
          for (std::size_t i = 0; i < piece.size(); ++i) piece[i] += SlotOf<float>(rank)[i];
      };
      Exchange(
          piece.size_bytes(), [&] { std::ranges::copy(piece, SlotOf<float>(group_.Rank())); }, add);
    }
  });
}

/// In the host's memory.
template <class T>
template <class E>
E* TensorSums<T>::SlotOf(int rank) {
  const auto slot = static_cast<std::size_t>(rank);
  if (!memory_) return reinterpret_cast<E*>(gathered_.data() + slot * kPiece);
  const std::size_t first = half_ * static_cast<std::size_t>(group_.Size());
  return reinterpret_cast<E*>(memory_->bytes().data() + (first + slot) * kPiece * sizeof(float));
}

/// Each rank writes so many bytes to its slot, and reads those of others when all have. A rank that
/// has met the others for this half of the memory has read all it wants of the other one, which is
/// then free to be written again.
template <class T>
template <class Write, class Read>
void TensorSums<T>::Exchange(std::size_t bytes, const Write& write, const Read& read) {
  write();
  if (memory_) {
    Meet();
  } else {
    std::vector<std::span<std::byte>> slots;
    for (int rank = 0; rank < group_.Size(); ++rank)
      slots.emplace_back(SlotOf<std::byte>(rank), bytes);
    Await(group_.AllGather(Purpose::kActivation, std::move(slots)).Wait(CollectiveDeadline()));
  }
  read();
  half_ = 1 - half_;
}

template <class T>
template <class E>
void TensorSums<T>::CopyTo(E* slot, const E* values, std::int64_t count) {
  device_.CopyToHost(slot, values, static_cast<std::size_t>(count) * sizeof(E));
}

template <class T>
template <class E>
void TensorSums<T>::SumOfSlots(std::span<E> piece) {
  Exchange(
      piece.size_bytes(),
      [&] { CopyTo(SlotOf<E>(group_.Rank()), piece.data(), std::ssize(piece)); },
      [&] {
        if constexpr (std::is_same_v<E, float>) {
          if (reproducible_) return AddAsTree(piece);
        }
        AddInOrder<E>(0, nullptr, piece);
      });
}

/// The residual, if there is one, and what the slots have from `first` on.
template <class T>
template <class E>
void TensorSums<T>::AddInOrder(std::int64_t first, const E* residual, std::span<E> piece) {
  const auto count = static_cast<std::int64_t>(piece.size());
  // For the device to read until the next call.
  const auto slot = [&](int rank) {
    const std::span<const E> there(SlotOf<E>(rank) + first, piece.size());
    return reinterpret_cast<const E*>(slot_.Of(device_, std::as_bytes(there)));
  };
  const int next = residual == nullptr ? 1 : 0;
  if (residual == nullptr) residual = slot(0);
  if constexpr (std::is_same_v<E, float>) {
    if (residual != piece.data()) device_.CopyWithin(piece.data(), residual, piece.size_bytes());
    for (int rank = next; rank < group_.Size(); ++rank)
      device_.AddInto(count, slot(rank), piece.data());
  } else {
    device_.Widen(count, residual, sums_.data());
    for (int rank = next; rank < group_.Size(); ++rank) {
      device_.Widen(count, slot(rank), more_.data());
      device_.AddInto(count, more_.data(), sums_.data());
    }
    device_.Round({.count = count, .parameters = sums_.data(), .weights = piece.data()});
  }
}

template <class T>
void TensorSums<T>::AddAsTree(std::span<float> piece) {
  const auto at = [&](std::int64_t place) {
    return place == 0 ? piece.data() : tree_.data() + static_cast<std::size_t>(place - 1) * kPiece;
  };
  kernels::AddTree(
      0, group_.Size(), 0,
      [&](std::int64_t rank, std::int64_t place) {
        device_.CopyFromHost(at(place), SlotOf<float>(static_cast<int>(rank)), piece.size_bytes());
      },
      [&](std::int64_t from, std::int64_t to) {
        device_.AddInto(std::ssize(piece), at(from), at(to));
      });
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
    if (reproducible_) return SumOfSlots(piece);
    const kernels::HostCopy<float> copy(device_, piece);
    Await(group_.AllReduce(Purpose::kActivation, copy.Fetch()).Wait(CollectiveDeadline()));
    copy.Store();
  } else {
    const auto count = static_cast<std::int64_t>(piece.size());
    device_.Widen(count, piece.data(), sums_.data());
    SumThroughTransport(sums_.span().first(piece.size()));
    device_.Round({.count = count, .parameters = sums_.data(), .weights = piece.data()});
  }
}

/// The part of `whole` that a rank has, in pieces of so many bytes.
template <class T>
std::span<std::byte> TensorSums<T>::PartOf(int rank, std::span<std::byte> whole,
                                           std::size_t piece) const {
  const TensorPart part{rank, group_.Size()};
  const ElementRange own = part.Of(static_cast<std::int64_t>(whole.size() / piece));
  return whole.subspan(static_cast<std::size_t>(own.begin) * piece,
                       static_cast<std::size_t>(own.size()) * piece);
}

template <class T>
void TensorSums<T>::Gather(std::span<std::byte> whole, std::size_t piece) {
  std::vector<std::span<std::byte>> parts;
  for (int rank = 0; rank < group_.Size(); ++rank) parts.push_back(PartOf(rank, whole, piece));
  Timed([&] {
    if (memory_) return GatherThroughMemory(parts);
    const kernels::GatheredParts gathered(device_, parts, group_.Rank());
    Await(group_.AllGather(Purpose::kActivation, gathered.Copies()).Wait(CollectiveDeadline()));
    gathered.Store();
  });
}

template <class T>
void TensorSums<T>::GatherThroughMemory(const std::vector<std::span<std::byte>>& parts) {
  constexpr std::size_t kBytes = kPiece * sizeof(float);
  const int own = group_.Rank();
  const std::size_t largest = parts.back().size();  // the last rank's is a largest one
  for (std::size_t first = 0; first < largest; first += kBytes) {
    const auto piece_of = [&](int rank) {
      const std::span<std::byte> part = parts[static_cast<std::size_t>(rank)];
      const std::size_t begin = std::min(first, part.size());
      return part.subspan(begin, std::min(kBytes, part.size() - begin));
    };
    const auto read = [&] {
      for (int rank = 0; rank < group_.Size(); ++rank) {
        const std::span<std::byte> piece = piece_of(rank);
        if (rank != own) device_.CopyFromHost(piece.data(), SlotOf<std::byte>(rank), piece.size());
      }
    };
    const auto write = [&] {
      CopyTo(SlotOf<std::byte>(own), piece_of(own).data(), std::ssize(piece_of(own)));
    };
    Exchange(kBytes, write, read);
  }
}

/// In each piece a slot has something for every rank, so that all add at the same time.
template <class T>
void TensorSums<T>::SumRows(const SharedRows<T>& rows) {
  assert(!reproducible_);
  const std::int64_t ranks = group_.Size(), most = static_cast<std::int64_t>(kPiece) / ranks;
  const auto piece_of = [&](std::int64_t rank, std::int64_t first) {
    const ElementRange own = TensorPart{rank, ranks}.Of(rows.rows);
    const std::int64_t begin = own.begin * rows.columns + first;
    return ElementRange{begin, std::max(begin, std::min(begin + most, own.end * rows.columns))};
  };
  const std::int64_t largest = TensorPart{ranks - 1, ranks}.Of(rows.rows).size() * rows.columns;
  Timed([&] {
    for (std::int64_t first = 0; first < largest; first += most) {
      const auto write = [&] {
        for (std::int64_t rank = 0; rank < ranks; ++rank) {
          const ElementRange piece = piece_of(rank, first);
          CopyTo(SlotOf<T>(group_.Rank()) + rank * most, rows.whole + piece.begin, piece.size());
        }
      };
      const auto read = [&] {
        const auto size = static_cast<std::size_t>(piece_of(group_.Rank(), first).size());
        AddInOrder<T>(group_.Rank() * most,
                      rows.residual == nullptr ? nullptr : rows.residual + first,
                      {rows.own + first, size});
      };
      Exchange(kPiece * sizeof(T), write, read);
    }
  });
}

namespace {

/// Calls body(first, rows) for pieces whose `columns` fit in so many values.
template <class Body>
void ForRows(std::int64_t rows, std::int64_t columns, std::size_t most, const Body& body) {
  const std::int64_t at_a_time = static_cast<std::int64_t>(most) / columns;
  assert(at_a_time > 0);
  for (std::int64_t first = 0; first < rows; first += at_a_time)
    body(first, std::min(at_a_time, rows - first));
}

/// Calls body(row, of, i) for the keys (of = 0) and values (of = 1) of the rows from `first` on, in
/// the order of a slot.
template <class Body>
void ForKeysAndValues(std::int64_t first, std::int64_t rows, const Body& body) {
  for (std::int64_t i = 0; i < 2 * rows; ++i) body(first + i / 2, i % 2, i);
}

}  // namespace

/// A head's rows where the host can pick columns.
template <class T>
struct HeadOnHost {
  HeadOnHost(kernels::DeviceMemory& memory, const SharedHead<T>& there)
      : part(memory, {there.part, there.PartRow(there.rows)}),
        whole(memory, {there.whole, there.WholeRow(there.rows)}),
        head(there) {
    head.part = part.Of().data();
    head.whole = whole.Of().data();
  }

  const kernels::HostCopy<T> part, whole;
  SharedHead<T> head;
};

/// The first of the ranks that share this rank's head.
template <class T>
int TensorSums<T>::FirstOf(const SharedHead<T>& head) const {
  return group_.Rank() - group_.Rank() % static_cast<int>(head.ranks);
}

template <class T>
void TensorSums<T>::GatherHead(const SharedHead<T>& there) {
  const HeadOnHost<T> copy(device_, there);
  const SharedHead<T>& head = copy.head;
  const std::int64_t size = head.PartSize();
  Timed([&] {
    copy.part.Fetch();
    for (std::int64_t row = 0; row < head.rows; ++row)
      std::copy(head.PartRow(row), head.InPart(row, 0), head.WholeRow(row));
    ForRows(head.rows, 2 * size, kPiece, [&](std::int64_t first, std::int64_t rows) {
      const auto write = [&] {
        T* slot = SlotOf<T>(group_.Rank());
        ForKeysAndValues(first, rows, [&](std::int64_t row, std::int64_t of, std::int64_t i) {
          std::copy_n(head.InPart(row, of), size, slot + i * size);
        });
      };
      const auto read = [&] {
        for (std::int64_t part = 0; part < head.ranks; ++part) {
          const T* slot = SlotOf<T>(FirstOf(head) + static_cast<int>(part));
          ForKeysAndValues(first, rows, [&](std::int64_t row, std::int64_t of, std::int64_t i) {
            std::copy_n(slot + i * size, size, head.InWhole(row, of) + part * size);
          });
        }
      };
      Exchange(static_cast<std::size_t>(2 * rows * size) * sizeof(T), write, read);
    });
    copy.whole.Store();
  });
}

/// 16-bit values are added in float32 and rounded once, as in other sums.
template <class T>
void TensorSums<T>::SumHead(const SharedHead<T>& there) {
  assert(!reproducible_);
  const HeadOnHost<T> copy(device_, there);
  const SharedHead<T>& head = copy.head;
  const std::int64_t size = head.PartSize(), own = (group_.Rank() - FirstOf(head)) * size;
  constexpr std::int64_t kSlot = kPiece * sizeof(float) / sizeof(T);
  const auto add = [&](const T* first, T* to) {
    for (std::int64_t column = 0; column < size; ++column) {
      float sum = 0;
      for (std::int64_t rank = 0; rank < head.ranks; ++rank)
        sum += kernels::ToFloat(first[rank * kSlot + column]);
      to[column] = kernels::Rounded<T>(sum);
    }
  };
  Timed([&] {
    copy.whole.Fetch();
    for (std::int64_t row = 0; row < head.rows; ++row)
      std::copy(head.WholeRow(row), head.InWhole(row, 0), head.PartRow(row));
    ForRows(head.rows, 2 * head.head_size, kPiece, [&](std::int64_t first, std::int64_t rows) {
      const auto write = [&] {
        T* slot = SlotOf<T>(group_.Rank());
        ForKeysAndValues(first, rows, [&](std::int64_t row, std::int64_t of, std::int64_t i) {
          std::copy_n(head.InWhole(row, of), head.head_size, slot + i * head.head_size);
        });
      };
      const auto read = [&] {
        const T* slot = SlotOf<T>(FirstOf(head)) + own;
        ForKeysAndValues(first, rows, [&](std::int64_t row, std::int64_t of, std::int64_t i) {
          add(slot + i * head.head_size, head.InPart(row, of));
        });
      };
      Exchange(static_cast<std::size_t>(2 * rows * head.head_size) * sizeof(T), write, read);
    });
    copy.part.Store();
  });
}

template class TensorSums<float>;
template class TensorSums<kernels::BFloat16>;
template class TensorSums<kernels::Float16>;

}  // namespace adaptive_train
