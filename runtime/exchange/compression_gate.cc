#include "runtime/exchange/compression_gate.h"

#include <fmt/format.h>

#include <algorithm>

namespace adaptive_train {
namespace {

constexpr int kRoundSteps = 4;

/// D C C D, then C D D C, and so on.
bool CompressedAt(int place) {
  if (place == 0) return true;
  const int in_round = (place - 1) % kRoundSteps;
  const bool middle = in_round == 1 || in_round == 2;
  const bool even_round = (place - 1) / kRoundSteps % 2 == 0;
  return middle == even_round;
}

double Median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  const std::size_t n = values.size();
  return (values[(n - 1) / 2] + values[n / 2]) / 2;
}

}  // namespace

bool CompressionGate::Compress() const {
  switch (phase_) {
    case Phase::kDense:
      return false;
    case Phase::kTrial:
      return CompressedAt(place_);
    case Phase::kDecided:
      break;
  }
  return *decision_;
}

void CompressionGate::Decide(bool compress) {
  phase_ = Phase::kDecided;
  decision_ = compress;
  steps_since_ = 0;
}

std::optional<std::string> CompressionGate::Took(const GateStep& step) {
  switch (phase_) {
    case Phase::kDense:
      dense_.push_back(step);
      return dense_.size() < kDenseSteps ? std::nullopt : EndOfDense();
    case Phase::kTrial:
      if (place_ > 0) (CompressedAt(place_) ? round_compressed_s_ : round_dense_s_) += step.step_s;
      if (CompressedAt(place_)) lost_ += step.step_s / dense_step_s_ - 1;
      ++place_;
      return place_ % kRoundSteps == 1 && place_ > 1 ? EndOfRound() : std::nullopt;
    case Phase::kDecided:
      break;
  }
  if (++steps_since_ < kStepsBetween) return std::nullopt;
  phase_ = Phase::kDense;
  dense_.clear();
  return std::nullopt;
}

std::optional<std::string> CompressionGate::EndOfDense() {
  std::vector<double> exposed, steps_s;
  for (const GateStep& step : dense_) {
    exposed.push_back(step.exposed_comm_s / step.step_s);
    steps_s.push_back(step.step_s);
  }
  dense_step_s_ = Median(steps_s);
  const double share = Median(exposed);
  if (share < kMargin) {
    return Decided(false, fmt::format("the exchange takes {:.1f} % of a dense step beyond backward",
                                      100 * share));
  }
  phase_ = Phase::kTrial;
  place_ = 0;
  ratios_.clear();
  lost_ = 0;
  round_dense_s_ = round_compressed_s_ = 0;
  return std::nullopt;
}

std::optional<std::string> CompressionGate::EndOfRound() {
  ratios_.push_back(round_compressed_s_ / round_dense_s_);
  round_dense_s_ = round_compressed_s_ = 0;
  const auto [least, most] = std::minmax_element(ratios_.begin(), ratios_.end());
  const auto rounds = static_cast<int>(ratios_.size());
  const bool dear = lost_ > kBudget && Median(ratios_) > 1;
  const bool agree = rounds >= 2 && (*most < 1 - kMargin || *least > 1);
  if (!dear && !agree && rounds < kMaxRounds) return std::nullopt;
  const double ratio = Median(ratios_);
  return Decided(
      ratio < 1 - kMargin,
      fmt::format("a compressed step takes {:.2f} of a dense one ({:.2f} to {:.2f} in {} "
                  "rounds)",
                  ratio, *least, *most, rounds));
}

std::string CompressionGate::Decided(bool compress, const std::string& why) {
  const bool flips = decision_ && *decision_ != compress;
  Decide(compress);
  return fmt::format("compression {}{}: {}", flips ? "turned " : "", compress ? "on" : "off", why);
}

}  // namespace adaptive_train
