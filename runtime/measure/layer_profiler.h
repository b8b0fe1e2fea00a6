// Measures layers in the first steps of a run, or later on request: how long each takes, and how
// much its gradient changes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <span>
#include <vector>

#include "core/control_message.h"
#include "core/model_shape.h"
#include "runtime/measure/layer_variance.h"
#include "runtime/model/layer_clock.h"
#include "runtime/model/parameter_layout.h"

namespace adaptive_train {

/// A measurement takes a number of optimizer steps. In these, gradients should be exchanged after
/// backward, not beside it, since the exchanging threads use the same processors. This changes no
/// result. The first of several steps is not timed, since kernels are built in it. Not thread-safe.
class LayerProfiler {
 public:
  /// Of the layers of an arena, in a model of `dims`. The layout must outlive this.
  LayerProfiler(const ParameterLayout& layout, const ModelDims& dims)
      : layout_(layout), shape_(ModelShape::Of(dims)) {}

  /// Measures the next `steps` steps; 0: none. Discards earlier measurements.
  void Begin(std::int64_t steps);
  /// Whether this step is measured.
  bool Active() const { return left_ > 0; }

  // In each measured step:

  /// Where the stage adds the times of a micro-batch of `samples`; valid until the step ends.
  PassTimes* NextMicroBatch(std::int64_t samples);
  /// Elements [begin, end) of the step's gradient, or of a micro-batch's part of it, in `memory`,
  /// before they are summed over ranks. Times `scale` they are the gradients of the loss.
  void TakeGradients(kernels::DeviceMemory& memory, std::span<const float> gradients,
                     std::size_t begin, std::size_t end, double scale) {
    variance_->Take(memory, gradients, begin, end, scale);
  }
  /// Adds work that touches every parameter once: the optimizer, clearing gradients.
  void AddUpdate(double seconds) { update_s_ += seconds; }
  /// A skipped step does not count and is followed by another one. Returns the results with the
  /// last step.
  std::optional<LayerTimes> EndStep(bool skipped);

 private:
  struct MicroBatch {
    std::int64_t samples = 0;
    PassTimes times;
  };
  LayerTimes Found() const;
  std::vector<double> Variances() const;
  LayerMeasurement Measure(LayerPart part, std::int64_t samples) const;

  const ParameterLayout& layout_;
  const ModelShape shape_;  // of the whole model
  std::int64_t steps_ = 0, left_ = 0;
  std::deque<MicroBatch> step_;            // of the current step
  double update_s_ = 0;                    // of the current step
  std::vector<MicroBatch> counted_;        // of earlier steps
  std::vector<double> updates_;            // seconds, one per counted step
  std::optional<LayerVariance> variance_;  // while measuring
};

}  // namespace adaptive_train
