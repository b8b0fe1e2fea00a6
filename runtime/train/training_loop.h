// The training loop of one rank, for arrays of T.
#pragma once

#include <array>
#include <cstdint>

#include "kernels/cpu/cpu_device.h"
#include "runtime/exchange/gradient_reducer.h"
#include "runtime/measure/layer_profiler.h"
#include "runtime/model/transformer_stage.h"
#include "runtime/train/checkpointer.h"
#include "runtime/train/compression_control.h"
#include "runtime/train/loss_scaler.h"
#include "runtime/train/lr_schedule.h"
#include "runtime/train/optimizer.h"
#include "runtime/train/sample_loader.h"
#include "runtime/train/step_clock.h"
#include "runtime/train/trainer.h"

namespace adaptive_train {

/// Parameters, gradients and moments are float32. With a 16-bit T, products read a copy of the
/// parameters that every update renews, and with float16 the loss is scaled.
template <class T>
class TrainingLoop final : public Trainer {
 public:
  TrainingLoop(const Config& config, const Plan& plan, int rank, Communicator& communicator,
               const Datasets& data, TrainerEvents events);

  std::string DeviceDescription() const override { return device_.Description(); }
  std::int64_t Resume() override;
  std::int64_t Run() override;

 private:
  /// What all ranks must know after a step, as one sum.
  struct Totals {
    double loss = 0;
    bool stop = false;
    bool save = false;
    bool profile = false;
  };

  bool Step();
  double ForwardBackward(std::int64_t step, StepClock& clock);
  void FinishMicroBatch(StepClock& clock);
  void WaitForWeights(std::size_t end);
  double MicroBatch(const Samples& samples, double scale, bool last);
  OnReady Exchange(bool last);
  typename TransformerStage<T>::OnHeadReady HeadExchange(bool last);
  void AddGradients(std::size_t begin, std::size_t end);
  void TakeGradients(std::size_t begin, std::size_t end);
  bool Measured() const { return profiler_.Active() || compression_.WantsGradients(); }
  template <class Wait>
  void Waiting(Wait wait);
  Totals Agree(double loss, StepClock& clock);
  void Update(RankMetrics& metrics);
  bool ValidationDue(std::int64_t step) const;
  double Validate();
  CheckpointStep At() const;
  std::vector<ElementRange> OwnedInCheckpoint() const;
  TrainingArenas Arenas();
  OptimizerArenas<T> ArenasOfUpdate();
  std::span<const T> Weights();
  void CheckReplicas();
  void Fill(RankMetrics& metrics);

  const Config& config_;
  const Plan& plan_;
  const RankPlan& share_;
  Communicator& communicator_;
  const Datasets& data_;
  const TrainerEvents events_;
  const ModelDims dims_;
  const ParameterLayout layout_;
  kernels::cpu::CpuDevice<T> device_;
  const bool sharded_;   // the optimizer is
  const bool releases_;  // gradients are as well
  kernels::Buffer<float> parameters_, gradients_, first_moments_, second_moments_;
  kernels::Buffer<T> weights_;  // empty where T is float: the parameters themselves
  TransformerStage<T> stage_;
  CompressionControl compression_;
  const std::int64_t exchanges_;  // of gradients in a step
  GradientReducer<T> reducer_;
  Optimizer<T> optimizer_;
  SampleLoader loader_;
  Checkpointer checkpointer_;
  const LrSchedule schedule_;
  LossScaler scaler_;  // of float16
  LayerProfiler profiler_;
  bool profile_asked_ = false;
  double waited_s_ = 0;  // in passes: for weights of other owners, for room for gradients
  struct {
    std::size_t begin = 0, end = 0;
  } early_;  // of this micro-batch's gradients, what went before its turn
  const double product_peak_;
  const double flops_per_token_;
  std::array<std::int64_t, kPurposes> sent_before_{};  // byte counts at the end of the last step
  double comm_cpu_before_ = 0;                         // the same of processor time
  std::int64_t step_ = 0;                              // optimizer steps done
  std::int64_t updates_ = 0;                           // of those, without the skipped ones
};

}  // namespace adaptive_train
