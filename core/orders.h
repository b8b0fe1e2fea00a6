// Orders to ranks besides their place and share: choices that the configuration names and the plan
// carries.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace adaptive_train {

/// docs/gradient_exchange.md describes the modes.
enum class CompressionMode : std::uint8_t {
  kOff,
  kAuto,
  kVarianceTopk,
  kGlobalTopk,
  kTopk,
  kSketch,
  kLocal
};
/// Whether ranks send parts of their gradients and hold back the rest.
constexpr bool HoldsBack(CompressionMode mode) {
  return mode != CompressionMode::kOff && mode != CompressionMode::kLocal;
}
/// The format in which selected values are sent. kAuto is a configuration's: with
/// CompressionMode::kAuto it is kInt4, for all elements, else kBf16. A plan that compresses never
/// has it.
enum class ValueEncoding : std::uint8_t { kFp32, kBf16, kFp8, kInt4, kAuto };
/// The measure that sets a layer's sparsity.
enum class VarianceMeasure : std::uint8_t { kRelative, kLiteral };
/// What happens to residuals at regular intervals.
enum class ResidualFlush : std::uint8_t { kSend, kDrop };
/// What the owners of shards send to all.
enum class GatherFormat : std::uint8_t { kWeights, kInt8 };
/// The shape of the learning rate after the warm-up.
enum class LrShape : std::uint8_t { kConstant, kLinear, kCosine };

/// What two runs must have in common for the same bits: also the layout, or not.
enum class Reproducible : std::uint8_t { kOff, kLayout };

/// With kLayout a sum that tensor ranks share has this many groups, whatever their number, which
/// divides it.
inline constexpr std::int64_t kTensorGroups = 8;

/// The names of the choices in configurations and plans, indexed by value.
template <class Choice>
std::span<const std::string_view> NamesOf();

template <class Choice>
std::string NameOf(Choice choice) {
  return std::string(NamesOf<Choice>()[static_cast<std::size_t>(choice)]);
}

/// None: no choice has this name.
template <class Choice>
std::optional<Choice> ChoiceOf(std::string_view name) {
  const auto names = NamesOf<Choice>();
  for (std::size_t i = 0; i < names.size(); ++i)
    if (names[i] == name) return static_cast<Choice>(i);
  return std::nullopt;
}

/// With more sparsity, or less density, next to nothing would ever be sent.
inline constexpr double kMostSparsity = 0.9999, kLeastDensity = 1e-4;

/// How gradients are compressed, or how seldom replicas exchange anything.
struct CompressionOrders {
  CompressionMode mode = CompressionMode::kOff;
  double s_min = 0.7;  // sparsity: the share of a layer's elements that is not sent
  double s_max = 0.95;
  double density = 0.1;  // of topk, global-topk, sketch: the share that is sent
  VarianceMeasure variance = VarianceMeasure::kRelative;
  double beta = 1.0;                // the share of a residual that an unsent element keeps
  std::int64_t flush_every = 1000;  // steps; 0 = never
  ResidualFlush flush = ResidualFlush::kSend;
  ValueEncoding values = ValueEncoding::kAuto;
  /// What goes in four bits goes through zstd too. No key of a configuration: plans decide it by
  /// the links.
  bool zstd = false;
  std::int64_t local_steps = 16;  // of local: from one mean over the replicas to the next
};

/// Whether the mode sends all elements, as four bits need it.
constexpr bool SendsAll(const CompressionOrders& orders) {
  return orders.mode == CompressionMode::kAuto ||
         (orders.mode == CompressionMode::kTopk && orders.density >= 1);
}

/// Whether and how often ranks keep their state in memory that outlives them.
struct KeepingOrders {
  bool on = false;
  std::int64_t every = 0;  // optimizer steps; 0: by what a copy costs
};

/// The orders of all ranks of a plan.
struct ExchangeOrders {
  CompressionOrders compression;
  GatherFormat gather = GatherFormat::kWeights;
  Reproducible reproducible = Reproducible::kOff;
  KeepingOrders keeping;

  /// Parameters have the same bits in any layout: docs/reproducible.md.
  bool AnyLayout() const { return reproducible == Reproducible::kLayout; }
};

}  // namespace adaptive_train
