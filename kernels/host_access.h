// What only the host can do with an array in a device's memory: random initial values, files.
#pragma once

#include <algorithm>
#include <cstddef>
#include <span>
#include <vector>

#include "kernels/buffer.h"

namespace adaptive_train::kernels {

/// The elements that the host holds at a time of an array that is not in its memory.
inline constexpr std::size_t kHostPiece = std::size_t{1} << 18;

/// Calls visit(first, piece) for consecutive pieces of `array`, which begin at element `first`.
/// `piece` is in host memory, undefined or, with kRead, what the array holds; what the visit leaves
/// there is the array's. An array in host memory is one piece, and nothing is copied.
template <bool kRead, class E, class Visit>
void ForHostPieces(DeviceMemory& memory, std::span<E> array, const Visit& visit) {
  if (memory.OnHost()) return visit(std::size_t{0}, array);
  std::vector<E> copy(std::min(kHostPiece, array.size()));
  for (std::size_t first = 0; first < array.size(); first += copy.size()) {
    const std::span<E> there = array.subspan(first, std::min(copy.size(), array.size() - first));
    const std::span<E> piece = std::span(copy).first(there.size());
    if (kRead) memory.CopyToHost(piece.data(), there.data(), there.size_bytes());
    visit(first, piece);
    memory.CopyFromHost(there.data(), piece.data(), there.size_bytes());
  }
}

/// The host reads the array: read(first, piece) as above, in pieces that it may not change.
template <class E, class Read>
void ReadOnHost(DeviceMemory& memory, std::span<const E> array, const Read& read) {
  if (memory.OnHost()) return read(std::size_t{0}, array);
  std::vector<E> copy(std::min(kHostPiece, array.size()));
  for (std::size_t first = 0; first < array.size(); first += copy.size()) {
    const std::span<const E> there =
        array.subspan(first, std::min(copy.size(), array.size() - first));
    memory.CopyToHost(copy.data(), there.data(), there.size_bytes());
    read(first, std::span<const E>(copy).first(there.size()));
  }
}

/// The host writes all of the array.
template <class E, class Write>
void WriteOnHost(DeviceMemory& memory, std::span<E> array, const Write& write) {
  ForHostPieces<false>(memory, array, write);
}

/// The host changes the array's values.
template <class E, class Change>
void ChangeOnHost(DeviceMemory& memory, std::span<E> array, const Change& change) {
  ForHostPieces<true>(memory, array, change);
}

}  // namespace adaptive_train::kernels
