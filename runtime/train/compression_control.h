// How gradients are compressed from step to step: what the configuration asks for, what the warm-up
// found of the layers, and whether it pays.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <variant>
#include <vector>

#include "core/orders.h"
#include "runtime/comm/group.h"
#include "runtime/exchange/compression_gate.h"
#include "runtime/exchange/exchange_policy.h"
#include "runtime/measure/layer_magnitudes.h"
#include "runtime/measure/layer_variance.h"

namespace adaptive_train {

/// Gives every step its ExchangePolicy, the same on all ranks. Where layers are to differ, warm-up
/// steps are dense, and their gradients are looked at. Not thread-safe.
class CompressionControl {
 public:
  /// `layout` must outlive this. With mode auto only the plan's `compressed_layers` (as LayersOf)
  /// are compressed; where it names none, what it went by may be wrong, and all of them are tried.
  CompressionControl(const CompressionOrders& orders, std::int64_t warm_up_steps,
                     const ParameterLayout& layout, int ranks,
                     const std::vector<int>& compressed_layers);

  /// Whether any step may be compressed: whether residuals are needed.
  bool MayCompress() const { return mode_ != CompressionMode::kOff; }
  /// How step `step` (from 1) is exchanged.
  ExchangePolicy PolicyOf(std::int64_t step) const;
  /// Residuals are to be forgotten before this step (the literal form of equation 5).
  bool ResetsBefore(std::int64_t step) const;

  /// This step's gradients must be looked at on the host before they are exchanged.
  bool WantsGradients() const { return warm_up_.has_value(); }
  /// Elements [begin, end), times `scale`; those of micro-batches add up.
  void TakeGradients(std::span<const float> gradients, std::size_t begin, std::size_t end,
                     double scale) {
    std::visit([&](auto& layers) { layers.Take(gradients, begin, end, scale); }, *warm_up_);
  }

  /// After a step: what it took on this rank. `counts` is false where other work was in it. Blocks
  /// for a sum over ranks at the end of the warm-up and while a decision is under way. Gives a line
  /// for people when something was decided.
  std::optional<std::string> EndStep(const GateStep& step, bool skipped, bool counts, Group& group);

  /// What a checkpoint keeps of this, by name; finite numbers.
  std::map<std::string, double> State() const;
  void Restore(const std::map<std::string, double>& state);

 private:
  bool WarmsUp() const {
    return mode_ == CompressionMode::kAuto || mode_ == CompressionMode::kVarianceTopk ||
           mode_ == CompressionMode::kGlobalTopk;
  }
  std::string EndWarmUp(Group& group);
  std::vector<double> DensitiesFrom(const LayerVariance& layers, Group& group) const;
  std::vector<double> DensitiesFrom(const LayerMagnitudes& layers, Group& group) const;
  std::map<std::string, double> Settings() const;

  const CompressionOrders orders_;
  const CompressionMode mode_;
  const std::size_t layers_;
  const std::vector<std::size_t> judged_;  // layers with a matrix
  const std::vector<int> chosen_;          // of auto, by the plan; empty: all
  std::int64_t warm_up_steps_ = 0, warm_up_left_ = 0;
  std::optional<std::variant<LayerVariance, LayerMagnitudes>> warm_up_;  // until it is over
  std::vector<double> densities_;                                        // [layers], once known
  CompressionGate gate_;                                                 // of auto
};

}  // namespace adaptive_train
