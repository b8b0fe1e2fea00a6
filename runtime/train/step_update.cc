#include "runtime/train/step_update.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <type_traits>
#include <vector>

#include "runtime/comm/collective.h"
#include "runtime/train/exact_squares.h"
#include "runtime/train/local_steps.h"

namespace adaptive_train {
namespace {

template <class T>
constexpr bool kScalesLoss = std::is_same_v<T, kernels::Float16>;

}  // namespace

template <class T>
StepUpdate<T>::StepUpdate(const Config& config, const Plan& plan, const RankPlan& own,
                          Groups& groups, RankState<T>& state, GradientReducer<T>& reducer,
                          TiedEmbedding<T>& tied, LayerProfiler& profiler, StepMeasure& measure)
    : config_(config.optimizer),
      plan_(plan),
      own_(own),
      groups_(groups),
      state_(state),
      reducer_(reducer),
      tied_(tied),
      profiler_(profiler),
      measure_(measure),
      exact_(plan.orders.AnyLayout()),
      optimizer_(state.device, state.trained, groups.data, reducer.Buckets(),
                 {.sharded = state.sharding.optimizer,
                  .int8 = state.sharding.optimizer && plan.orders.gather == GatherFormat::kInt8}),
      schedule_{config.optimizer.schedule, config.optimizer.lr, config.optimizer.warmup_steps,
                config.train.steps} {}

template <class T>
double StepUpdate<T>::LossScale() const {
  return kScalesLoss<T> ? scaler_.scale : 1.0;
}

/// Replicas that are not sharded have the same sums: one counts.
template <class T>
std::vector<double> StepUpdate<T>::Squares(bool local) {
  local_ = local;
  const double before = measure_.SecondsOf(Activity::kCompute);
  std::vector<double> squares =
      exact_ ? optimizer_.ExactSquaredNorm(state_.TrainedGradients())
             : std::vector{optimizer_.SquaredNorm(state_.TrainedGradients())};
  if (local_) {
    const double share = ShareOf(plan_, own_), own = squares[0] / (share * share);
    squares.assign(static_cast<std::size_t>(groups_.data.Size()), 0.0);
    squares[static_cast<std::size_t>(groups_.data.Rank())] = own;
  } else if (!state_.sharding.optimizer && groups_.data.Rank() > 0) {
    std::fill(squares.begin(), squares.end(), 0.0);
  }
  if (profiler_.Active()) profiler_.AddUpdate(measure_.SecondsOf(Activity::kCompute) - before);
  return squares;
}

template <class T>
void StepUpdate<T>::Make(std::span<const double> squares, RankMetrics& metrics) {
  const double before = measure_.SecondsOf(Activity::kCompute);
  metrics.lr = schedule_.At(metrics.step);
  Judge(squares, metrics);
  KeepWeights();
  if (!metrics.skipped) MakeUpdate(metrics);
  if (profiler_.Active()) state_.device.Wait();
  if (profiler_.Active()) profiler_.AddUpdate(measure_.SecondsOf(Activity::kCompute) - before);
}

template <class T>
void StepUpdate<T>::JudgeLocal(std::span<const double> squares, RankMetrics& metrics) {
  const double sum = std::accumulate(squares.begin(), squares.end(), 0.0);
  metrics.grad_norm = std::sqrt(sum / static_cast<double>(squares.size())) / metrics.loss_scale;
  clipped_norm_ =
      std::sqrt(squares[static_cast<std::size_t>(groups_.data.Rank())]) / metrics.loss_scale;
  // Backward has made this rank's part of the mean over the batch.
  gradient_scale_ = 1 / ShareOf(plan_, own_);
}

template <class T>
void StepUpdate<T>::Judge(std::span<const double> squares, RankMetrics& metrics) {
  metrics.loss_scale = LossScale();
  if (local_) {
    JudgeLocal(squares, metrics);
  } else {
    metrics.grad_norm =
        std::sqrt(exact_ ? ExactSquares::SumOf(squares) : squares[0]) / metrics.loss_scale;
    clipped_norm_ = metrics.grad_norm;
    gradient_scale_ = 1;
  }
  metrics.skipped = !std::isfinite(metrics.grad_norm);
  reducer_.Settle(!metrics.skipped);
  scaler_.Update(!metrics.skipped);
  if (LossScale() != metrics.loss_scale)
    reducer_.Rescale(static_cast<float>(LossScale() / metrics.loss_scale));
}

/// An element of a gradient is nearly all noise of the samples (McCandlish et al., 2018): with a share
/// s of the batch its square is about 1/s times that of the whole batch. Second moments that took it
/// unscaled would make local steps shorter by the root of that.
template <class T>
void StepUpdate<T>::MakeUpdate(const RankMetrics& metrics) {
  const OptimizerConfig& o = config_;
  const double clip = o.clip > 0 && clipped_norm_ > o.clip ? o.clip / clipped_norm_ : 1.0;
  const AdamWSettings settings{o.beta1, o.beta2, 1e-8, o.weight_decay,
                               local_ ? ShareOf(plan_, own_) : 1};
  ++updates_;
  tied_.WaitForWeights();
  optimizer_.Step(settings, state_.OfUpdate(), updates_, metrics.lr,
                  clip * gradient_scale_ / metrics.loss_scale);
  SendWeights();
}

/// The last step's gathering goes on beside the forward pass of the layers before.
template <class T>
void StepUpdate<T>::WaitForWeights(std::size_t end) {
  measure_.As(Activity::kExposedComm, [&] { optimizer_.FinishUpTo(end); });
  if (state_.layout.Copy() != nullptr && end > state_.TrainedSize()) tied_.WaitForWeights();
}

template <class T>
void StepUpdate<T>::MakeWeights() {
  optimizer_.MakeWeights(state_.OfUpdate());
  SendWeights();
  tied_.WaitForWeights();
  KeepWeights();
}

template <class T>
void StepUpdate<T>::KeepWeights() {
  if (!state_.HasOlderWeights()) return;
  WaitForAllWeights();
  state_.KeepWeights();
}

template <class T>
void StepUpdate<T>::SendWeights() {
  if (!tied_.Active()) return;
  WaitForWeights(std::min(tied_.End(), state_.TrainedSize()));
  tied_.SendWeights();
}

template <class T>
std::map<std::string, double> StepUpdate<T>::Kept() const {
  if (!kScalesLoss<T>) return {};
  return {{"loss_scale", scaler_.scale},
          {"loss_scale_good_steps", static_cast<double>(scaler_.good_steps)}};
}

template <class T>
void StepUpdate<T>::Restore(std::int64_t updates, const std::map<std::string, double>& kept) {
  updates_ = updates;
  // A run that was in another precision so far has no scale yet.
  const auto scale = kept.find("loss_scale"), good = kept.find("loss_scale_good_steps");
  if (scale != kept.end()) scaler_.scale = scale->second;
  if (good != kept.end()) scaler_.good_steps = static_cast<std::int64_t>(good->second);
  // Residuals are gradients of the scaled loss; the run may have been in another precision.
  const double then = scale == kept.end() ? 1 : scale->second;
  if (LossScale() != then) reducer_.Rescale(static_cast<float>(LossScale() / then));
}

template class StepUpdate<float>;
template class StepUpdate<kernels::BFloat16>;
template class StepUpdate<kernels::Float16>;

}  // namespace adaptive_train
