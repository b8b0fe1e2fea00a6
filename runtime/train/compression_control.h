// How gradients are compressed from step to step: what the configuration asks for, what the warm-up
// found of the layers, and whether it pays.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <variant>
#include <vector>

#include "core/orders.h"
#include "runtime/comm/groups.h"
#include "runtime/exchange/compression_gate.h"
#include "runtime/exchange/exchange_policy.h"
#include "runtime/measure/layer_magnitudes.h"
#include "runtime/measure/layer_variance.h"

namespace adaptive_train {

/// numbers[i] becomes the sum over all ranks. Blocks.
using SumOfNumbers = std::function<void(std::span<double>)>;

/// A line for people about something that was decided.
struct CompressionDecision {
  std::string text;
  bool of_model = false;  // all ranks made it together; false: the replicas of a stage
};

/// Gives every step its ExchangePolicy, the same on all replicas of a stage. Where layers are to
/// differ, warm-up steps are dense, and their gradients are looked at. All ranks together then find
/// each layer's density, since layers are judged against each other. In four bits all elements go,
/// and nothing is to be found. With mode auto the replicas of each stage find for themselves
/// whether compressing pays. Layers have their numbers in the model,
/// so that what a checkpoint keeps holds for any layout. With one replica nothing is compressed or
/// decided. Not thread-safe.
class CompressionControl {
 public:
  /// `layout` is of this rank's arena. With mode auto only the plan's `compressed_layers` (numbers
  /// in the model) are compressed; where it names none of this stage, what it went by may be wrong,
  /// and all of them are tried.
  CompressionControl(const CompressionOrders& orders, std::int64_t warm_up_steps,
                     const ModelDims& dims, const ParameterLayout& layout, int replicas,
                     const std::vector<int>& compressed_layers);

  /// Whether any step may be compressed: whether residuals are needed.
  bool MayCompress() const { return mode_ != CompressionMode::kOff; }
  /// Whether the configuration asks for it, whatever this layout allows.
  bool Asked() const { return HoldsBack(orders_.mode); }
  /// How step `step` (from 1) is exchanged.
  ExchangePolicy PolicyOf(std::int64_t step) const;
  /// Residuals are to be forgotten before this step (the literal form of equation 5).
  bool ResetsBefore(std::int64_t step) const;

  /// This step's gradients must be looked at before they are exchanged.
  bool WantsGradients() const { return warm_up_.has_value(); }
  /// Elements [begin, end) of those in `memory`, times `scale`; those of micro-batches add up.
  void TakeGradients(kernels::DeviceMemory& memory, std::span<const float> gradients,
                     std::size_t begin, std::size_t end, double scale) {
    std::visit([&](auto& layers) { layers.Take(memory, gradients, begin, end, scale); }, *warm_up_);
  }

  /// After a step: what it took on this rank. `counts` is false where other work was in it. Blocks
  /// for a sum over all ranks at the end of the warm-up, and for one over the replicas while these
  /// decide.
  std::optional<CompressionDecision> EndStep(const GateStep& step, bool skipped, bool counts,
                                             Groups& groups);

  /// What a checkpoint keeps of this, by name, the same on all ranks; finite numbers. All ranks
  /// call it together; of each stage one `speaks`.
  std::map<std::string, double> State(bool speaks, const SumOfNumbers& sum) const;
  /// Gives a line for people where a decision of the checkpoint has no place in this layout.
  std::optional<std::string> Restore(const std::map<std::string, double>& state);

 private:
  std::string EndWarmUp(Groups& groups);
  std::vector<double> DensitiesFrom(const LayerVariance& layers, Groups& groups) const;
  std::vector<double> DensitiesFrom(const LayerMagnitudes& layers, Groups& groups) const;
  std::map<std::string, double> Settings() const;
  bool MadeAlike(const std::map<std::string, double>& state) const;
  std::vector<double> KnownDensities(const std::map<std::string, double>& state) const;
  std::optional<std::string> RestoreGate(const std::map<std::string, double>& state);

  const CompressionOrders orders_;
  const CompressionMode mode_;
  const std::vector<std::size_t> numbers_;  // in the model, as LayersOf the arena
  const std::vector<std::size_t> held_;     // those of them that have elements
  const std::vector<std::size_t> judged_;   // layers of the model with a matrix
  const std::size_t layers_;                // of the model
  const std::vector<int> chosen_;           // of auto, by the plan; empty: all
  std::int64_t warm_up_steps_ = 0, warm_up_left_ = 0;
  std::optional<std::variant<LayerVariance, LayerMagnitudes>> warm_up_;  // until it is over
  std::vector<double> densities_;            // [layers of the model], once known
  CompressionGate gate_;                     // of auto
  std::map<std::string, double> handed_on_;  // with one replica: what the checkpoint keeps
};

}  // namespace adaptive_train
