// Counter-based random numbers: every number is a pure function of where it is used, never of which
// rank draws it.
//
// Philox4x32-10 of Salmon, Moraes, Dror and Shaw, "Parallel random numbers: as easy as 1, 2, 3", SC
// 2011. It uses only integer arithmetic and the four basic operations (and square root) of IEEE
// doubles. The same place therefore has the same bits on every machine, whatever its mathematics
// library.
#pragma once

#include <array>
#include <cstdint>

namespace adaptive_train {

using PhiloxCounter = std::array<std::uint32_t, 4>;
using PhiloxKey = std::array<std::uint32_t, 2>;

inline constexpr int kPhiloxRounds = 10;
inline constexpr std::array<std::uint32_t, 2> kPhiloxMultipliers{0xD2511F53, 0xCD9E8D57};
inline constexpr std::array<std::uint32_t, 2> kPhiloxWeyl{0x9E3779B9,   // golden ratio
                                                          0xBB67AE85};  // sqrt(3) - 1

/// The block function: 128 random bits for a 128-bit counter under a 64-bit key.
constexpr PhiloxCounter Philox4x32(PhiloxCounter counter, PhiloxKey key) {
  for (int round = 0; round < kPhiloxRounds; ++round) {
    const std::uint64_t product_0 = std::uint64_t{kPhiloxMultipliers[0]} * counter[0];
    const std::uint64_t product_1 = std::uint64_t{kPhiloxMultipliers[1]} * counter[2];
    counter = {static_cast<std::uint32_t>(product_1 >> 32) ^ counter[1] ^ key[0],
               static_cast<std::uint32_t>(product_1),
               static_cast<std::uint32_t>(product_0 >> 32) ^ counter[3] ^ key[1],
               static_cast<std::uint32_t>(product_0)};
    key[0] += kPhiloxWeyl[0];
    key[1] += kPhiloxWeyl[1];
  }
  return counter;
}

/// The purpose of random numbers. Two purposes never share numbers under one seed.
enum class RandomPurpose : std::uint32_t {
  kInitialization = 1,  // element = global offset of the parameter
  kSampleOrder = 2,     // step = epoch
  kDropout = 3,
  kRounding = 4,
  kMasking = 5,
  kSimulation = 6,
};

/// Where a number is used. The same place gives the same number on every rank and in every layout.
/// The fields together are the Philox counter, hence their widths.
struct RandomPlace {
  std::uint32_t step = 0;    // optimizer step, or epoch
  std::uint32_t sample = 0;  // global sample of the step, never a rank's own index
  std::uint16_t layer = 0;
  std::uint64_t element = 0;  // below 2^50
};

/// Random numbers of one seed and purpose. A value without state: any thread, any order.
class CounterRandom {
 public:
  CounterRandom(std::uint64_t seed, RandomPurpose purpose);

  /// 32 random bits.
  std::uint32_t Bits(const RandomPlace& place) const;
  /// Uniform in [0, 1), a multiple of 2^-24.
  float Uniform(const RandomPlace& place) const;
  /// Standard normal (Box and Muller 1958), |x| below 6.7.
  float Normal(const RandomPlace& place) const;
  /// The normals of elements [4 * block, 4 * block + 4) of `place`, whose own element is ignored;
  /// four times as fast as one by one.
  std::array<float, 4> Normals(RandomPlace place, std::uint64_t block) const;

  /// For code that computes many blocks at a time: Bits of elements [4 * block, 4 * block + 4) of
  /// `place` are Philox4x32(Counter(place, block), key()). The element of `place` itself is
  /// ignored. The next block's counter has a first word larger by one, unless that wraps around.
  static PhiloxCounter Counter(const RandomPlace& place, std::uint64_t block);
  const PhiloxKey& key() const { return key_; }

 private:
  PhiloxKey key_;
};

}  // namespace adaptive_train
