// What the first steps of a run, or later ones if asked, tell of the layers: how long each takes
// and how much its gradient changes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <span>
#include <vector>

#include "core/control_message.h"
#include "runtime/measure/layer_variance.h"
#include "runtime/model/layer_clock.h"
#include "runtime/model/parameter_layout.h"

namespace adaptive_train {

/// A measurement runs over a number of optimizer steps. In them gradients should be exchanged after
/// backward instead of beside it, which changes no result: the threads that exchange take their
/// time from the same processors. The first step of several tells no time: kernels are built in it.
/// Not thread-safe.
class LayerProfiler {
 public:
  explicit LayerProfiler(const ParameterLayout& layout) : layout_(layout) {}

  /// Measures in the next `steps` steps; 0: in none. Forgets what was measured so far.
  void Begin(std::int64_t steps);
  /// This step is measured.
  bool Active() const { return left_ > 0; }

  // In each measured step.

  /// Where the stage adds the times of a micro-batch of `samples`; valid until the step ends.
  PassTimes* NextMicroBatch(std::int64_t samples);
  /// Elements [begin, end) of the step's gradient, or of a micro-batch's part of it, on the host,
  /// before they are summed over ranks; times `scale` they are those of the loss.
  void TakeGradients(std::span<const float> gradients, std::size_t begin, std::size_t end,
                     double scale) {
    variance_->Take(gradients, begin, end, scale);
  }
  /// Work of the step that touches every parameter once: the optimizer, clearing gradients.
  void AddUpdate(double seconds) { update_s_ += seconds; }
  /// A step that was skipped counts for nothing and is followed by one more. Gives what was found
  /// with the last step.
  std::optional<LayerTimes> EndStep(bool skipped);

 private:
  struct MicroBatch {
    std::int64_t samples = 0;
    PassTimes times;
  };
  LayerTimes Found() const;
  LayerMeasurement Measure(LayerPart part, std::int64_t samples) const;

  const ParameterLayout& layout_;
  std::int64_t steps_ = 0, left_ = 0;
  std::deque<MicroBatch> step_;            // of the present step
  double update_s_ = 0;                    // of the present step
  std::vector<MicroBatch> counted_;        // of those before
  std::vector<double> updates_;            // seconds, one a counted step
  std::optional<LayerVariance> variance_;  // while measuring
};

}  // namespace adaptive_train
