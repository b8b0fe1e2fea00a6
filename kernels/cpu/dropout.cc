// Dropout with four random numbers from each Philox block, several blocks at a time.
#include "kernels/dropout.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "kernels/cpu/cpu_device.h"
#include "kernels/cpu/passes.h"
#include "kernels/cpu/piece_functions.h"
#include "kernels/cpu/thread_pool.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/dropout.cc"
#include <hwy/foreach_target.h>

#include "kernels/cpu/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace adaptive_train::kernels::cpu {
namespace HWY_NAMESPACE {
namespace {

/// Lane j of each of the four words belongs to one block's counter and uses the lower half of 64
/// bits. The upper halves do not matter: the product of even 32-bit lanes ignores them.
using BlockTag = hn::ScalableTag<std::uint64_t>;
using Blocks = hn::Vec<BlockTag>;

#if HWY_TARGET == HWY_SCALAR
constexpr std::uint32_t kBlocksAtATime = 1;

HWY_INLINE void RandomWords(PhiloxCounter first, const PhiloxRoundKeys& keys,
                            std::uint32_t* words) {
  const PhiloxCounter block = Philox4x32(first, keys[0]);
  std::copy(block.begin(), block.end(), words);
}
#else
constexpr std::uint32_t kBlocksPerState = HWY_LANES(std::uint64_t);
constexpr std::uint32_t kBlocksAtATime = 2 * kBlocksPerState;

HWY_INLINE Blocks Product(Blocks word, std::uint32_t multiplier) {
  const hn::Repartition<std::uint32_t, BlockTag> words;
  return hn::MulEven(hn::BitCast(words, word), hn::Set(words, multiplier));
}

HWY_INLINE void Round(const PhiloxKey& key, Blocks& w0, Blocks& w1, Blocks& w2, Blocks& w3) {
  const BlockTag tag;
  const Blocks product_0 = Product(w0, kPhiloxMultipliers[0]);
  const Blocks product_1 = Product(w2, kPhiloxMultipliers[1]);
  w0 = hn::Xor(hn::ShiftRight<32>(product_1), hn::Xor(w1, hn::Set(tag, key[0])));
  w2 = hn::Xor(hn::ShiftRight<32>(product_0), hn::Xor(w3, hn::Set(tag, key[1])));
  w1 = product_1;
  w3 = product_0;
}

/// Stores the words in the order of their blocks.
HWY_INLINE void StoreWords(Blocks w0, Blocks w1, Blocks w2, Blocks w3, std::uint32_t* words) {
  const BlockTag tag;
  const Blocks low = hn::Set(tag, 0xffffffff);
  hn::StoreInterleaved2(hn::Or(hn::And(w0, low), hn::ShiftLeft<32>(w1)),
                        hn::Or(hn::And(w2, low), hn::ShiftLeft<32>(w3)), tag,
                        reinterpret_cast<std::uint64_t*>(words));
}

/// The words of kBlocksAtATime blocks, from counter `first` on. Two states run side by side, since
/// each round waits for the one before it.
HWY_INLINE void RandomWords(PhiloxCounter first, const PhiloxRoundKeys& keys,
                            std::uint32_t* words) {
  const BlockTag tag;
  Blocks a0 = hn::Add(hn::Set(tag, first[0]), hn::Iota(tag, 0));
  Blocks b0 = hn::Add(a0, hn::Set(tag, kBlocksPerState));
  Blocks a1 = hn::Set(tag, first[1]), a2 = hn::Set(tag, first[2]), a3 = hn::Set(tag, first[3]);
  Blocks b1 = a1, b2 = a2, b3 = a3;
  for (const PhiloxKey& key : keys) {
    Round(key, a0, a1, a2, a3);
    Round(key, b0, b1, b2, b3);
  }
  StoreWords(a0, a1, a2, a3, words);
  StoreWords(b0, b1, b2, b3, words + std::size_t{4} * kBlocksPerState);
}
#endif

/// Handles elements [begin, end) of one sample, all in one of its pieces of kElementsPerPiece, so
/// that no counter's first word wraps around.
template <class T>
void DropoutPiece(const DropoutPass<T>& pass, std::int64_t begin, std::int64_t end) {
  const DropoutArguments<T>& x = pass.x;
  const T *input = x.input, *residual = x.residual;
  T* output = x.output;
  const std::int64_t at = pass.sample * x.elements - x.begin;  // of the sample in the arrays
  // Uniform(...) is k * 2^-24 with an integer k. It is at least the probability exactly if k is at
  // least this threshold.
  const Words threshold = SetBits(static_cast<std::uint32_t>(std::ceil(x.probability * 0x1p24)));
  const Floats scale = Set(static_cast<float>(1 / (1 - x.probability)));
  constexpr std::int64_t kNumbers = std::int64_t{4} * kBlocksAtATime;
  const std::int64_t aligned = begin / kNumbers * kNumbers;
  PhiloxCounter counter =
      CounterRandom::Counter({.step = x.step,
                              .sample = x.first_sample + static_cast<std::uint32_t>(pass.sample),
                              .layer = x.layer},
                             static_cast<std::uint64_t>(aligned / 4));
  for (std::int64_t first = aligned; first < end; first += kNumbers) {
    // A vector may begin anywhere in them.
    HWY_ALIGN std::uint32_t words[2 * kNumbers];
    RandomWords(counter, pass.keys, words);
    counter[0] += kBlocksAtATime;
    const std::uint32_t* random = words;
    const auto vector = [=](std::int64_t i, auto part) HWY_ATTR {
      const Words number = hn::ShiftRight<8>(hn::LoadU(WordTag(), random + (i - first)));
      const auto kept = hn::RebindMask(FloatTag(), hn::Not(hn::Lt(number, threshold)));
      const Floats value = hn::IfThenElseZero(kept, hn::Mul(Load(input + (at + i), part), scale));
      Store(residual == nullptr ? value : hn::Add(Load(residual + (at + i), part), value),
            output + (at + i), part);
    };
    ForVectors(std::max(first, begin), std::min(end, first + kNumbers), vector);
  }
}

PieceFunctions<DropoutPass> DropoutPieces() {
  return {DropoutPiece<float>, DropoutPiece<BFloat16>, DropoutPiece<Float16>};
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace adaptive_train::kernels::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace adaptive_train::kernels::cpu {
namespace {
HWY_EXPORT(DropoutPieces);
}  // namespace

template <class T>
void CpuDevice<T>::Dropout(const DropoutArguments<T>& x) {
  const auto piece = HWY_DYNAMIC_DISPATCH(DropoutPieces)().template On<T>();
  PhiloxRoundKeys keys;
  keys[0] = x.random.key();
  for (std::size_t round = 1; round < keys.size(); ++round) {
    keys[round] = {keys[round - 1][0] + kPhiloxWeyl[0], keys[round - 1][1] + kPhiloxWeyl[1]};
  }
  if (x.begin == x.end) return;
  const std::int64_t pieces = (x.elements + kElementsPerPiece - 1) / kElementsPerPiece;
  const std::int64_t first = x.begin / x.elements, last = (x.end - 1) / x.elements;
  pool_.For((last - first + 1) * pieces, [&](std::int64_t index, int) {
    const std::int64_t sample = first + index / pieces, at = sample * x.elements;
    const std::int64_t of_piece = index % pieces * kElementsPerPiece;
    const std::int64_t begin = std::max(of_piece, x.begin - at);
    const std::int64_t end = std::min({of_piece + kElementsPerPiece, x.elements, x.end - at});
    if (begin < end) piece({x, keys, sample}, begin, end);
  });
}

template void CpuDevice<float>::Dropout(const DropoutArguments<float>&);
template void CpuDevice<BFloat16>::Dropout(const DropoutArguments<BFloat16>&);
template void CpuDevice<Float16>::Dropout(const DropoutArguments<Float16>&);

}  // namespace adaptive_train::kernels::cpu
#endif
