// The Feistel network behind the order of samples.
#include "runtime/data/permutation.h"

#include <bit>
#include <cassert>

namespace adaptive_train {
namespace {

constexpr std::uint32_t kRounds = 8;

}  // namespace

Permutation::Permutation(std::int64_t size, std::uint64_t seed, std::uint32_t epoch)
    : size_(static_cast<std::uint64_t>(size)),
      random_(seed, RandomPurpose::kSampleOrder),
      epoch_(epoch) {
  assert(size >= 1 && size <= std::int64_t{1} << 48);
  const int bits = std::bit_width(size_ - 1);
  half_bits_ = bits < 2 ? 1 : (bits + 1) / 2;
}

// Encryption permutes [0, 4^half_bits). Repeating it from a value in the range leads back into the
// range, at the latest at that value itself. Fewer than four steps are expected.
std::int64_t Permutation::operator()(std::int64_t position) const {
  assert(position >= 0 && static_cast<std::uint64_t>(position) < size_);
  auto value = static_cast<std::uint64_t>(position);
  do value = Encrypt(value);
  while (value >= size_);
  return static_cast<std::int64_t>(value);
}

std::uint64_t Permutation::Encrypt(std::uint64_t value) const {
  const std::uint64_t mask = (std::uint64_t{1} << half_bits_) - 1;
  std::uint64_t left = value >> half_bits_, right = value & mask;
  for (std::uint32_t round = 0; round < kRounds; ++round) {
    const std::uint64_t mixed =
        left ^ (random_.Bits({.step = epoch_, .sample = round, .element = right * 4}) & mask);
    left = right;
    right = mixed;
  }
  return left << half_bits_ | right;
}

}  // namespace adaptive_train
