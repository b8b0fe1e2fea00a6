// Chooses positions without replacement, and what replaces their tokens.
#include "runtime/data/masked_language.h"

#include <algorithm>
#include <cassert>
#include <numeric>
#include <vector>

#include "core/model_shape.h"

namespace adaptive_train {
namespace {

// A sample's random numbers: [0, sequence) choose positions, then two per position.
constexpr float kMaskShare = 0.8F, kRandomShare = 0.1F;

}  // namespace

MaskedLanguage::MaskedLanguage(std::int64_t sequence, std::int64_t vocab, std::uint64_t seed)
    : sequence_(sequence),
      vocab_(vocab),
      targets_(MaskedTargets(sequence)),
      random_(seed, RandomPurpose::kMasking) {
  assert(sequence >= 1 && vocab >= 2);
}

void MaskedLanguage::Hide(std::uint32_t round, std::uint32_t sample, std::span<std::int32_t> tokens,
                          std::span<std::int32_t> targets) const {
  assert(static_cast<std::int64_t>(tokens.size()) == sequence_ && targets.size() == tokens.size());
  const RandomPlace place{.step = round, .sample = sample};
  std::fill(targets.begin(), targets.end(), -1);
  std::vector<std::size_t> positions(tokens.size());
  std::iota(positions.begin(), positions.end(), std::size_t{0});
  for (std::size_t i = 0; i < static_cast<std::size_t>(targets_); ++i) {
    // Fisher and Yates; the remainder's bias is below sequence / 2^32.
    RandomPlace draw = place;
    draw.element = i;
    std::swap(positions[i], positions[i + random_.Bits(draw) % (positions.size() - i)]);
    const std::size_t at = positions[i];
    targets[at] = tokens[at];
    draw.element = tokens.size() + 2 * at;
    tokens[at] = Replacement(draw, tokens[at]);
  }
}

std::int32_t MaskedLanguage::Replacement(const RandomPlace& place, std::int32_t token) const {
  const float choice = random_.Uniform(place);
  if (choice < kMaskShare) return mask_token();
  if (choice >= kMaskShare + kRandomShare) return token;
  RandomPlace which = place;
  ++which.element;
  return static_cast<std::int32_t>(random_.Bits(which) % static_cast<std::uint32_t>(vocab_ - 1));
}

}  // namespace adaptive_train
