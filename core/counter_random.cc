// Random numbers by place, and normal numbers by arithmetic that is the same on every machine.
#include "core/counter_random.h"

#include <bit>
#include <cassert>
#include <cmath>

namespace adaptive_train {
namespace {

constexpr double kPi = 3.14159265358979323846;
constexpr double kLn2 = 0.69314718055994530942;
constexpr double kSqrt2 = 1.41421356237309504880;

/// The natural logarithm of a normal positive double, to about 1e-15: ln(m 2^e) = e ln 2 + 2
/// artanh((m - 1) / (m + 1)).
double Log(double x) {
  const auto bits = std::bit_cast<std::uint64_t>(x);
  int exponent = static_cast<int>(bits >> 52) - 1023;
  double mantissa = std::bit_cast<double>((bits & 0xFFFFFFFFFFFFF) | 0x3FF0000000000000);
  if (mantissa > kSqrt2) {
    mantissa *= 0.5;
    ++exponent;
  }
  const double s = (mantissa - 1) / (mantissa + 1), s2 = s * s;
  double series = 0;
  for (int k = 19; k >= 1; k -= 2) series = series * s2 + 1.0 / k;
  return exponent * kLn2 + 2 * s * series;
}

struct SineCosine {
  double sine, cosine;
};

/// Sine and cosine of `turns` full turns, with turns in [0, 1). A Taylor series within an eighth of
/// a turn of the nearest quarter.
SineCosine OfTurns(double turns) {
  const int quarter = static_cast<int>(std::lround(turns * 4));
  const double angle = (turns - quarter * 0.25) * (2 * kPi), a2 = angle * angle;
  double sine = 1, cosine = 1;
  for (int k = 16; k >= 2; k -= 2) {
    sine = 1 - sine * a2 / (k * (k + 1));
    cosine = 1 - cosine * a2 / (k * (k - 1));
  }
  sine *= angle;
  switch (quarter & 3) {
    case 0:
      return {sine, cosine};
    case 1:
      return {cosine, -sine};
    case 2:
      return {-sine, -cosine};
    default:
      return {-cosine, sine};
  }
}

/// Two normals from two words of random bits (Box and Muller 1958).
std::array<float, 2> BoxMuller(std::uint32_t radius_bits, std::uint32_t angle_bits) {
  constexpr double kTwoToMinus32 = 1.0 / 4294967296.0;
  const double radius = std::sqrt(-2 * Log((radius_bits + 0.5) * kTwoToMinus32));
  const SineCosine direction = OfTurns(angle_bits * kTwoToMinus32);
  return {static_cast<float>(radius * direction.cosine),
          static_cast<float>(radius * direction.sine)};
}

}  // namespace

// The block function combines the purpose with the seed, so that no two pairs share a key
// arithmetically.
CounterRandom::CounterRandom(std::uint64_t seed, RandomPurpose purpose) {
  const PhiloxCounter mixed =
      Philox4x32({static_cast<std::uint32_t>(purpose), 0, 0, 0},
                 {static_cast<std::uint32_t>(seed), static_cast<std::uint32_t>(seed >> 32)});
  key_ = {mixed[0], mixed[1]};
}

PhiloxCounter CounterRandom::Counter(const RandomPlace& place, std::uint64_t block) {
  assert(block < std::uint64_t{1} << 48);
  return {static_cast<std::uint32_t>(block), place.step, place.sample,
          static_cast<std::uint32_t>(block >> 32) << 16 | place.layer};
}

std::uint32_t CounterRandom::Bits(const RandomPlace& place) const {
  return Philox4x32(Counter(place, place.element / 4), key_)[place.element % 4];
}

float CounterRandom::Uniform(const RandomPlace& place) const {
  return static_cast<float>(Bits(place) >> 8) * (1.0F / 16777216.0F);
}

float CounterRandom::Normal(const RandomPlace& place) const {
  return Normals(place, place.element / 4)[place.element % 4];
}

std::array<float, 4> CounterRandom::Normals(RandomPlace place, std::uint64_t block) const {
  const PhiloxCounter bits = Philox4x32(Counter(place, block), key_);
  const std::array<float, 2> low = BoxMuller(bits[0], bits[1]), high = BoxMuller(bits[2], bits[3]);
  return {low[0], low[1], high[0], high[1]};
}

}  // namespace adaptive_train
