// Runs a rank's schedule: forward and backward of each micro-batch in the order that it says.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "core/pipeline_schedule.h"
#include "core/plan.h"
#include "runtime/measure/layer_profiler.h"
#include "runtime/model/transformer_stage.h"
#include "runtime/train/sample_loader.h"
#include "runtime/train/step_exchange.h"
#include "runtime/train/step_measure.h"

namespace adaptive_train {

/// Not thread-safe. What is passed by reference must outlive this.
template <class T>
class StageRunner {
 public:
  StageRunner(const Plan& plan, const RankPlan& own, TransformerStage<T>& stage,
              SampleLoader& loader, LayerProfiler& profiler, StepMeasure& measure);

  /// Adds the gradients of this rank's samples of the step, times scale, and hands them to the
  /// exchange as they become final. Gives the sum of the token losses.
  double Run(std::int64_t step, double scale, StepExchange<T>& exchange);

 private:
  struct MicroBatch {
    std::int64_t first_sample = 0;  // of the global batch
    std::int64_t samples = 0;
  };

  double Forward(const MicroBatch& micro_batch, std::int64_t step, double scale);
  void Backward(bool last, StepExchange<T>& exchange);

  TransformerStage<T>& stage_;
  SampleLoader& loader_;
  LayerProfiler& profiler_;
  StepMeasure& measure_;
  std::vector<MicroBatch> micro_batches_;
  const std::vector<ScheduledAction> schedule_;
};

}  // namespace adaptive_train
