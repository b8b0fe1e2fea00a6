#include "runtime/train/compression_control.h"

#include <fmt/format.h>

#include <algorithm>

#include "runtime/exchange/sparsity.h"
#include "runtime/train/collective.h"

namespace adaptive_train {
namespace {

/// A variance needs two steps.
constexpr std::int64_t kLeastWarmUp = 2;

std::string DensityName(std::size_t layer) { return fmt::format("gradient_density_{}", layer); }
constexpr const char* kGateName = "compression_pays";

/// Layers with a matrix. Norms and biases alone are sent whole and must not set the others' scale.
std::vector<std::size_t> LayersWithMatrix(const ParameterLayout& layout) {
  const std::vector<LayerElements> layers = LayersOf(layout);
  std::vector<std::size_t> with;
  for (std::size_t layer = 0; layer < layers.size(); ++layer) {
    const bool matrix = std::any_of(
        layout.ranges().begin(), layout.ranges().end(), [&](const ParameterRange& range) {
          const auto at = static_cast<std::size_t>(range.offset);
          return range.shape.size() > 1 && at >= layers[layer].begin && at < layers[layer].end;
        });
    if (matrix) with.push_back(layer);
  }
  return with;
}

kernels::ValueFormat FormatOf(ValueEncoding values) {
  switch (values) {
    case ValueEncoding::kFp32:
      return kernels::ValueFormat::kFloat32;
    case ValueEncoding::kFp8:
      return kernels::ValueFormat::kFloat8;
    default:
      return kernels::ValueFormat::kBFloat16;
  }
}

}  // namespace

CompressionControl::CompressionControl(const CompressionOrders& orders, std::int64_t warm_up_steps,
                                       const ParameterLayout& layout, int ranks,
                                       const std::vector<int>& compressed_layers)
    : orders_(orders),
      mode_(ranks == 1 ? CompressionMode::kOff : orders.mode),
      layers_(LayersOf(layout).size()),
      judged_(LayersWithMatrix(layout)),
      chosen_(compressed_layers) {
  if (mode_ == CompressionMode::kTopk || mode_ == CompressionMode::kSketch)
    densities_.assign(layers_, orders_.density);
  if (!WarmsUp()) return;
  warm_up_steps_ = warm_up_left_ = std::max(kLeastWarmUp, warm_up_steps);
  if (mode_ == CompressionMode::kGlobalTopk) {
    warm_up_.emplace(std::in_place_type<LayerMagnitudes>, layout);
  } else {
    warm_up_.emplace(std::in_place_type<LayerVariance>, layout);
  }
}

ExchangePolicy CompressionControl::PolicyOf(std::int64_t step) const {
  ExchangePolicy policy;
  policy.format = FormatOf(orders_.values);
  policy.keep = orders_.beta;
  if (densities_.empty() || (mode_ == CompressionMode::kAuto && !gate_.Compress())) return policy;
  policy.density.assign(densities_.begin(), densities_.end());
  // Everything that was held back goes out now and then, so that none of it grows old.
  const std::int64_t every = orders_.flush_every;
  const bool flush = every > 0 && step % every == 0 && orders_.flush == ResidualFlush::kSend;
  if (flush) std::fill(policy.density.begin(), policy.density.end(), 1.0);
  if (mode_ == CompressionMode::kAuto && !chosen_.empty()) {
    for (std::size_t layer = 0; layer < layers_; ++layer)
      if (!std::binary_search(chosen_.begin(), chosen_.end(), static_cast<int>(layer)))
        policy.density[layer] = std::nullopt;
  }
  policy.sketch =
      mode_ == CompressionMode::kSketch && !flush;  // of everything it would be longer than itself
  return policy;
}

bool CompressionControl::ResetsBefore(std::int64_t step) const {
  return MayCompress() && orders_.flush == ResidualFlush::kDrop && orders_.flush_every > 0 &&
         step % orders_.flush_every == 0;
}

std::optional<std::string> CompressionControl::EndStep(const GateStep& step, bool skipped,
                                                       bool counts, Group& group) {
  if (warm_up_) {
    std::visit([&](auto& layers) { skipped ? layers.Drop() : layers.Count(); }, *warm_up_);
    if (skipped) return std::nullopt;
    if (--warm_up_left_ > 0) return std::nullopt;
    return EndWarmUp(group);
  }
  if (mode_ != CompressionMode::kAuto || skipped || !counts) return std::nullopt;
  if (!gate_.Deciding()) return gate_.Took(step);
  double sums[2] = {step.step_s, step.exposed_comm_s};
  SumOverRanks(group, sums);
  return gate_.Took({sums[0] / group.Size(), sums[1] / group.Size()});
}

/// Each rank saw its own samples; the mean over ranks is what all follow.
std::vector<double> CompressionControl::DensitiesFrom(const LayerVariance& layers,
                                                      Group& group) const {
  std::vector<double> variances =
      orders_.variance == VarianceMeasure::kLiteral ? layers.Literal() : layers.Relative();
  SumOverRanks(group, variances);
  std::vector<double> judged;
  for (const std::size_t layer : judged_) judged.push_back(variances[layer] / group.Size());
  return DensitiesOf(judged, {orders_.s_min, orders_.s_max});
}

std::vector<double> CompressionControl::DensitiesFrom(const LayerMagnitudes& layers,
                                                      Group& group) const {
  constexpr std::size_t kClasses = LayerMagnitudes::kClasses;
  std::vector<double> counts;
  for (const std::size_t layer : judged_) {
    const std::span<const double> of_layer = layers.CountsOf(layer);
    counts.insert(counts.end(), of_layer.begin(), of_layer.end());
  }
  SumOverRanks(group, counts);
  std::vector<std::span<const double>> by_layer;
  for (std::size_t i = 0; i < judged_.size(); ++i)
    by_layer.push_back(std::span(counts).subspan(i * kClasses, kClasses));
  return DensitiesAboveThreshold(by_layer, orders_.density);
}

std::string CompressionControl::EndWarmUp(Group& group) {
  const std::vector<double> found =
      std::visit([&](const auto& layers) { return DensitiesFrom(layers, group); }, *warm_up_);
  warm_up_.reset();
  densities_.assign(layers_, 1.0);
  for (std::size_t i = 0; i < found.size(); ++i) densities_[judged_[i]] = found[i];
  const auto [least, most] = std::minmax_element(found.begin(), found.end());
  return fmt::format(
      "gradients: by {} of {} steps {:.3f} to {:.3f} of the elements of {} layers' matrices are to "
      "be sent",
      mode_ == CompressionMode::kGlobalTopk ? "one threshold" : "the variance", warm_up_steps_,
      *least, *most, found.size());
}

std::map<std::string, double> CompressionControl::State() const {
  std::map<std::string, double> state;
  if (!WarmsUp()) return state;
  for (std::size_t layer = 0; layer < densities_.size(); ++layer)
    state[DensityName(layer)] = densities_[layer];
  if (densities_.empty()) return state;
  for (const auto& [name, value] : Settings()) state[name] = value;
  if (mode_ == CompressionMode::kAuto && gate_.Decision())
    state[kGateName] = *gate_.Decision() ? 1 : 0;
  return state;
}

/// What densities were made by: with others they must be found anew.
std::map<std::string, double> CompressionControl::Settings() const {
  if (mode_ == CompressionMode::kGlobalTopk) return {{"gradient_global_density", orders_.density}};
  return {{"gradient_s_min", orders_.s_min},
          {"gradient_s_max", orders_.s_max},
          {"gradient_variance_literal", orders_.variance == VarianceMeasure::kLiteral ? 1 : 0}};
}

void CompressionControl::Restore(const std::map<std::string, double>& state) {
  if (!warm_up_) return;
  for (const auto& [name, value] : Settings()) {
    const auto found = state.find(name);
    if (found == state.end() || found->second != value) return;
  }
  std::vector<double> densities;
  for (std::size_t layer = 0; layer < layers_; ++layer) {
    const auto found = state.find(DensityName(layer));
    if (found == state.end()) return;
    densities.push_back(std::clamp(found->second, 0.0, 1.0));
  }
  densities_ = std::move(densities);
  warm_up_.reset();
  if (const auto found = state.find(kGateName); found != state.end())
    gate_.Decide(found->second > 0);
}

}  // namespace adaptive_train
