// The graph of a count sketch, and its peeling.
#include "runtime/compress/count_sketch.h"

#include <algorithm>
#include <cassert>
#include <cmath>

namespace adaptive_train {
namespace {

/// Steele, Lea and Flood 2014: the finalizer of SplitMix64.
std::uint64_t Mix(std::uint64_t z) {
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ULL;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebULL;
  return z ^ (z >> 31);
}

constexpr std::uint64_t kGolden = 0x9e3779b97f4a7c15ULL;

/// A number below `range` from 32 random bits (Lemire 2019).
std::uint64_t Below(std::uint64_t range, std::uint64_t bits) { return (bits * range) >> 32; }

}  // namespace

std::uint64_t SketchSeed(std::uint32_t bucket, std::int64_t step) {
  return Mix(Mix(bucket * kGolden) + static_cast<std::uint64_t>(step));
}

std::size_t CountSketch::CellsFor(std::size_t keys) {
  if (keys == 0) return 0;
  const auto n = static_cast<double>(keys);
  const double cells = std::max(1.23 * n + 3 * std::sqrt(n), 30 * std::cbrt(n * n));
  return 3 * static_cast<std::size_t>(std::ceil(cells / 3));
}

CountSketch::CountSketch(std::size_t keys, std::uint64_t seed)
    : keys_(keys), third_(CellsFor(keys) / 3), seed_(seed) {
  assert(keys < std::size_t{1} << 31);
  Peel();
}

std::array<std::uint32_t, 3> CountSketch::CellsOf(std::uint32_t key) const {
  const std::uint64_t first = Mix(seed_ + key * kGolden);
  const std::uint64_t second = Mix(first + kGolden);
  const auto cell = [this](std::uint64_t third, std::uint64_t bits) {
    return static_cast<std::uint32_t>(third * third_ + Below(third_, bits));
  };
  return {cell(0, first >> 32), cell(1, first & UINT32_MAX), cell(2, second >> 32)};
}

void CountSketch::Peel() {
  struct Cell {
    std::uint32_t degree = 0;
    std::uint32_t keys = 0;  // XOR of all keys: the last one left is the key itself
  };
  std::vector<Cell> graph(cells());
  const auto turn = [&graph](std::uint32_t cell, std::uint32_t key, std::uint32_t degree) {
    graph[cell].degree += degree;
    graph[cell].keys ^= key;
    return graph[cell].degree == 1;
  };
  for (std::uint32_t key = 0; key < keys_; ++key) {
    for (const std::uint32_t cell : CellsOf(key)) turn(cell, key, 1);
  }
  std::vector<std::uint32_t> alone;
  for (std::uint32_t cell = 0; cell < graph.size(); ++cell) {
    if (graph[cell].degree == 1) alone.push_back(cell);
  }
  order_.reserve(keys_);
  while (!alone.empty()) {
    const std::uint32_t from = alone.back();
    alone.pop_back();
    if (graph[from].degree != 1) continue;  // its key was alone in another cell too
    const std::uint32_t key = graph[from].keys;
    order_.push_back({key, from});
    for (const std::uint32_t cell : CellsOf(key)) {
      if (turn(cell, key, UINT32_MAX)) alone.push_back(cell);
    }
  }
}

std::vector<std::uint32_t> CountSketch::Encode(std::span<const std::int32_t> numbers) const {
  assert(numbers.size() == keys_);
  std::vector<std::uint32_t> sketch(cells());
  for (std::uint32_t key = 0; key < keys_; ++key) {
    const auto number = static_cast<std::uint32_t>(numbers[key]);
    if (number == 0) continue;
    for (const std::uint32_t cell : CellsOf(key)) sketch[cell] += number;
  }
  return sketch;
}

bool CountSketch::Decode(std::span<std::uint32_t> cells, std::span<std::int32_t> numbers) const {
  assert(peels() && cells.size() == this->cells() && numbers.size() == keys_);
  for (const auto& [key, alone] : order_) {
    const std::uint32_t number = cells[alone];
    numbers[key] = static_cast<std::int32_t>(number);
    if (number == 0) continue;
    for (const std::uint32_t cell : CellsOf(key)) cells[cell] -= number;
  }
  return std::ranges::all_of(cells, [](std::uint32_t cell) { return cell == 0; });
}

}  // namespace adaptive_train
