#include "runtime/train/compression_control.h"

#include <fmt/format.h>

#include <algorithm>

#include "runtime/comm/collective.h"
#include "runtime/exchange/sparsity.h"
#include "runtime/model/layer_numbers.h"

namespace adaptive_train {
namespace {

/// A variance needs two steps.
constexpr std::int64_t kLeastWarmUp = 2;

constexpr const char* kDensityName = "gradient_density_";
constexpr const char* kGateName = "compression_pays_";
/// In checkpoints of programs without stages: of all layers.
constexpr const char* kOneGateName = "compression_pays";

std::string KeyOf(const char* what, std::size_t layer) { return fmt::format("{}{}", what, layer); }

/// Whether a run finds out something that its checkpoints keep.
bool FindsOut(CompressionMode mode) {
  return mode == CompressionMode::kAuto || mode == CompressionMode::kVarianceTopk ||
         mode == CompressionMode::kGlobalTopk;
}

/// Whether that includes densities, in warm-up steps. In four bits all elements are sent.
bool FindsDensities(const CompressionOrders& orders) {
  return FindsOut(orders.mode) && orders.values != ValueEncoding::kInt4;
}

std::vector<std::size_t> NumbersOf(const ParameterLayout& layout, std::int64_t blocks) {
  const std::vector<int> numbers = LayerNumbersOf(layout, blocks);
  return {numbers.begin(), numbers.end()};
}

std::vector<std::size_t> HeldLayers(const ParameterLayout& layout, std::int64_t blocks) {
  const std::vector<std::size_t> numbers = NumbersOf(layout, blocks);
  const std::vector<LayerElements> layers = LayersOf(layout);
  std::vector<std::size_t> held;
  for (std::size_t layer = 0; layer < layers.size(); ++layer)
    if (layers[layer].size() > 0) held.push_back(numbers[layer]);
  return held;
}

/// Layers of the model with a matrix. Norms and biases alone are sent whole and must not set the
/// others' scale.
std::vector<std::size_t> LayersWithMatrix(const ModelDims& dims) {
  const ParameterLayout layout(dims, StageSlice::Whole(dims));
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
    case ValueEncoding::kInt4:
      return kernels::ValueFormat::kInt4;
    default:
      return kernels::ValueFormat::kBFloat16;
  }
}

}  // namespace

CompressionControl::CompressionControl(const CompressionOrders& orders, std::int64_t warm_up_steps,
                                       const ModelDims& dims, const ParameterLayout& layout,
                                       int replicas, const std::vector<int>& compressed_layers)
    : orders_(orders),
      mode_(replicas > 1 && HoldsBack(orders.mode) ? orders.mode : CompressionMode::kOff),
      numbers_(NumbersOf(layout, dims.layers)),
      held_(HeldLayers(layout, dims.layers)),
      judged_(LayersWithMatrix(dims)),
      layers_(static_cast<std::size_t>(dims.layers + 2)),
      chosen_(compressed_layers) {
  if (mode_ == CompressionMode::kTopk || mode_ == CompressionMode::kSketch)
    densities_.assign(layers_, orders_.density);
  if (mode_ == CompressionMode::kOff) return;
  if (!FindsDensities(orders_)) {
    if (mode_ == CompressionMode::kAuto) densities_.assign(layers_, 1);
    return;
  }
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
  policy.zstd = orders_.zstd;
  if (densities_.empty() || (mode_ == CompressionMode::kAuto && !gate_.Compress())) return policy;
  for (const std::size_t layer : numbers_) policy.density.push_back(densities_[layer]);
  // Everything that was held back goes out now and then, so that none of it grows old. In four bits
  // every step sends something of all elements.
  const std::int64_t every = orders_.flush_every;
  const bool flush = every > 0 && step % every == 0 && orders_.flush == ResidualFlush::kSend;
  if (flush) std::fill(policy.density.begin(), policy.density.end(), 1.0);
  if (mode_ == CompressionMode::kAuto && !chosen_.empty()) {
    for (std::size_t layer = 0; layer < numbers_.size(); ++layer)
      if (!std::binary_search(chosen_.begin(), chosen_.end(), static_cast<int>(numbers_[layer])))
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

std::optional<CompressionDecision> CompressionControl::EndStep(const GateStep& step, bool skipped,
                                                               bool counts, Groups& groups) {
  if (warm_up_) {
    std::visit([&](auto& layers) { skipped ? layers.Drop() : layers.Count(); }, *warm_up_);
    if (skipped) return std::nullopt;
    if (--warm_up_left_ > 0) return std::nullopt;
    return CompressionDecision{EndWarmUp(groups), true};
  }
  if (mode_ != CompressionMode::kAuto || skipped || !counts) return std::nullopt;
  GateStep mean = step;
  if (gate_.Deciding()) {
    // Tensor ranks decide alike: what they all have must have one exchange.
    double sums[2] = {step.step_s, step.exposed_comm_s};
    SumOverRanks(groups.data, sums);
    if (groups.tensor.Size() > 1) SumOverRanks(groups.tensor, sums);
    const double ranks = groups.data.Size() * groups.tensor.Size();
    mean = {sums[0] / ranks, sums[1] / ranks};
  }
  const auto decided = gate_.Took(mean);
  if (!decided) return std::nullopt;
  return CompressionDecision{*decided, false};
}

/// Each rank saw its own samples and layers, or its part of them; the mean over the samples of those
/// that have a layer is what all follow. A part counts by its elements, and a literal variance is
/// itself a sum over elements.
std::vector<double> CompressionControl::DensitiesFrom(const LayerVariance& layers,
                                                      Groups& groups) const {
  const bool literal = orders_.variance == VarianceMeasure::kLiteral;
  const std::vector<double> own = literal ? layers.Literal() : layers.Relative();
  std::vector<double> sums(2 * layers_, 0.0);  // of each layer: variances, weights
  for (std::size_t layer = 0; layer < own.size(); ++layer) {
    const auto elements = static_cast<double>(layers.ElementsOf(layer));
    sums[2 * numbers_[layer]] = literal ? own[layer] : own[layer] * elements;
    sums[2 * numbers_[layer] + 1] = literal ? 1.0 / groups.tensor.Size() : elements;
  }
  SumOverRanks(groups.world, sums);
  std::vector<double> judged;
  for (const std::size_t layer : judged_) judged.push_back(sums[2 * layer] / sums[2 * layer + 1]);
  return DensitiesOf(judged, {orders_.s_min, orders_.s_max});
}

std::vector<double> CompressionControl::DensitiesFrom(const LayerMagnitudes& layers,
                                                      Groups& groups) const {
  constexpr std::size_t kClasses = LayerMagnitudes::kClasses;
  std::vector<double> counts(judged_.size() * kClasses, 0.0);
  for (std::size_t layer = 0; layer < numbers_.size(); ++layer) {
    const auto judged = std::lower_bound(judged_.begin(), judged_.end(), numbers_[layer]);
    if (judged == judged_.end() || *judged != numbers_[layer]) continue;
    const std::span<const double> own = layers.CountsOf(layer);
    const auto place = static_cast<std::size_t>(judged - judged_.begin());
    std::copy(own.begin(), own.end(), std::span(counts).subspan(place * kClasses).begin());
  }
  SumOverRanks(groups.world, counts);
  std::vector<std::span<const double>> by_layer;
  for (std::size_t i = 0; i < judged_.size(); ++i)
    by_layer.push_back(std::span(counts).subspan(i * kClasses, kClasses));
  return DensitiesAboveThreshold(by_layer, orders_.density);
}

std::string CompressionControl::EndWarmUp(Groups& groups) {
  const std::vector<double> found =
      std::visit([&](const auto& layers) { return DensitiesFrom(layers, groups); }, *warm_up_);
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

std::map<std::string, double> CompressionControl::State(bool speaks,
                                                        const SumOfNumbers& sum) const {
  std::map<std::string, double> state = handed_on_;
  if (!FindsOut(mode_) || densities_.empty()) return state;
  for (std::size_t layer = 0; FindsDensities(orders_) && layer < layers_; ++layer)
    state[KeyOf(kDensityName, layer)] = densities_[layer];
  for (const auto& [name, value] : Settings()) state[name] = value;
  if (mode_ != CompressionMode::kAuto) return state;
  // Of each layer: whether it is decided, and how.
  std::vector<double> gates(2 * layers_, 0.0);
  for (const std::size_t layer : held_) {
    if (!speaks || !gate_.Decision()) continue;
    gates[2 * layer] = 1;
    gates[2 * layer + 1] = *gate_.Decision() ? 1 : 0;
  }
  sum(gates);
  for (std::size_t layer = 0; layer < layers_; ++layer)
    if (gates[2 * layer] > 0) state[KeyOf(kGateName, layer)] = gates[2 * layer + 1] > 0 ? 1 : 0;
  return state;
}

/// What the findings were made by: with others they must be found anew.
std::map<std::string, double> CompressionControl::Settings() const {
  if (!FindsDensities(orders_)) return {{"gradient_bits", 4}};
  if (mode_ == CompressionMode::kGlobalTopk) return {{"gradient_global_density", orders_.density}};
  return {{"gradient_s_min", orders_.s_min},
          {"gradient_s_max", orders_.s_max},
          {"gradient_variance_literal", orders_.variance == VarianceMeasure::kLiteral ? 1 : 0}};
}

bool CompressionControl::MadeAlike(const std::map<std::string, double>& state) const {
  return std::ranges::all_of(Settings(), [&](const auto& setting) {
    const auto found = state.find(setting.first);
    return found != state.end() && found->second == setting.second;
  });
}

/// Of all layers; empty where they must be found anew.
std::vector<double> CompressionControl::KnownDensities(
    const std::map<std::string, double>& state) const {
  std::vector<double> densities;
  for (std::size_t layer = 0; layer < layers_; ++layer) {
    const auto found = state.find(KeyOf(kDensityName, layer));
    if (found == state.end()) return {};
    densities.push_back(std::clamp(found->second, 0.0, 1.0));
  }
  return densities;
}

std::optional<std::string> CompressionControl::Restore(const std::map<std::string, double>& state) {
  if (mode_ == CompressionMode::kOff && FindsOut(orders_.mode)) {
    for (const auto& [name, value] : state)
      if (name.starts_with("gradient_") || name.starts_with(kOneGateName)) handed_on_[name] = value;
  }
  if (!FindsOut(mode_) || !MadeAlike(state)) return std::nullopt;
  if (warm_up_) {
    std::vector<double> densities = KnownDensities(state);
    if (densities.empty()) return std::nullopt;
    densities_ = std::move(densities);
    warm_up_.reset();
  }
  return mode_ == CompressionMode::kAuto ? RestoreGate(state) : std::nullopt;
}

/// A stage may have layers of several stages of the checkpoint, which decided each for itself.
std::optional<std::string> CompressionControl::RestoreGate(
    const std::map<std::string, double>& state) {
  std::size_t decided = 0, compressed = 0;
  for (const std::size_t layer : held_) {
    auto found = state.find(KeyOf(kGateName, layer));
    if (found == state.end()) found = state.find(kOneGateName);
    if (found == state.end()) continue;
    ++decided;
    compressed += found->second > 0 ? 1 : 0;
  }
  if (decided == 0) return std::nullopt;
  if (decided < held_.size() || (compressed > 0 && compressed < decided)) {
    return fmt::format(
        "gradients: the checkpoint's stages compressed {} of these {} layers and not {}: whether "
        "compressing pays is tried again",
        compressed, held_.size(), decided - compressed);
  }
  gate_.Decide(compressed > 0);
  return std::nullopt;
}

}  // namespace adaptive_train
