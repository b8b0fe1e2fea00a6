#include "runtime/measure/layer_profiler.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>
#include <set>
#include <utility>

#include "runtime/model/layer_numbers.h"

namespace adaptive_train {
namespace {

constexpr std::array<const char*, kLayerParts> kNames = {"embedding", "block", "head"};

double Median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  const std::size_t n = values.size();
  return n == 0 ? 0 : (values[(n - 1) / 2] + values[n / 2]) / 2;
}

/// Standard deviation over mean; 0 for a single value.
double RelativeSpread(const std::vector<double>& values) {
  const auto n = static_cast<double>(values.size());
  const double mean = std::accumulate(values.begin(), values.end(), 0.0) / n;
  if (values.size() < 2 || mean <= 0) return 0;
  double squares = 0;
  for (double value : values) squares += (value - mean) * (value - mean);
  return std::sqrt(squares / (n - 1)) / mean;
}

/// A stage of a pipeline may lack any part of the model.
bool Holds(const ParameterLayout& layout, LayerPart part) {
  return std::any_of(layout.ranges().begin(), layout.ranges().end(),
                     [part](const ParameterRange& range) { return range.part == part; });
}

}  // namespace

void LayerProfiler::Begin(std::int64_t steps) {
  steps_ = left_ = steps;
  step_.clear();
  update_s_ = 0;
  counted_.clear();
  updates_.clear();
  variance_.reset();
  if (steps > 0) variance_.emplace(layout_);
}

PassTimes* LayerProfiler::NextMicroBatch(std::int64_t samples) {
  step_.push_back({samples, {}});
  return &step_.back().times;
}

std::optional<LayerTimes> LayerProfiler::EndStep(bool skipped) {
  const std::deque<MicroBatch> step = std::exchange(step_, {});
  const double update_s = std::exchange(update_s_, 0);
  skipped ? variance_->Drop() : variance_->Count();
  if (skipped) return std::nullopt;
  const bool builds_kernels = left_ == steps_ && steps_ > 1;
  if (!builds_kernels) {
    counted_.insert(counted_.end(), step.begin(), step.end());
    updates_.push_back(update_s);
  }
  if (--left_ > 0) return std::nullopt;
  LayerTimes found = Found();
  Begin(0);
  return found;
}

LayerTimes LayerProfiler::Found() const {
  LayerTimes found;
  found.variances = Variances();
  std::set<std::int64_t> sizes;
  for (const MicroBatch& batch : counted_) sizes.insert(batch.samples);
  for (std::int64_t samples : sizes) {
    for (LayerPart part : {LayerPart::kEmbedding, LayerPart::kBlock, LayerPart::kHead})
      if (Holds(layout_, part)) found.entries.push_back(Measure(part, samples));
  }
  return found;
}

/// [ModelShape::layers]; kLayerNotHeld for those of other ranks.
std::vector<double> LayerProfiler::Variances() const {
  const std::vector<double> own = variance_->Relative();
  const std::vector<LayerElements> layers = LayersOf(layout_);
  const std::vector<int> numbers = LayerNumbersOf(layout_, shape_.dims.layers);
  std::vector<double> variances(shape_.layers.size(), kLayerNotHeld);
  for (std::size_t layer = 0; layer < layers.size(); ++layer)
    if (layers[layer].size() > 0) variances[static_cast<std::size_t>(numbers[layer])] = own[layer];
  return variances;
}

/// Of the whole layer, also where tensor ranks share it; without their sums. For a block: the mean
/// over all blocks, which are alike, per micro-batch.
LayerMeasurement LayerProfiler::Measure(LayerPart part, std::int64_t samples) const {
  const auto p = static_cast<std::size_t>(part);
  const std::vector<LayerElements> layers = LayersOf(layout_);
  const std::vector<double> variances = variance_->Relative();
  const std::size_t first = part == LayerPart::kEmbedding ? 0
                            : part == LayerPart::kBlock   ? 1
                                                          : layers.size() - 1;
  const std::size_t count =
      part == LayerPart::kBlock ? std::max<std::size_t>(1, layers.size() - 2) : 1;

  std::vector<double> forward, backward, weight_gradients, both;
  for (const MicroBatch& batch : counted_) {
    if (batch.samples != samples) continue;
    forward.push_back(batch.times.forward[p] / static_cast<double>(count));
    backward.push_back(batch.times.backward[p] / static_cast<double>(count));
    weight_gradients.push_back(batch.times.weight_gradients[p] / static_cast<double>(count));
    both.push_back(forward.back() + backward.back());
  }
  const std::int64_t ranks = layout_.tensor().ranks;
  const LayerShape& whole = part == LayerPart::kEmbedding ? shape_.layers.front()
                            : part == LayerPart::kBlock   ? shape_.layers[1]
                                                          : shape_.layers.back();
  LayerMeasurement entry;
  entry.layer = kNames[p];
  entry.micro_batch = samples;
  entry.forward_s = Median(forward) / whole.PartOfWork(ranks);
  entry.backward_s = Median(backward) / whole.PartOfWork(ranks);
  entry.weight_gradients_s = Median(weight_gradients) / whole.PartOfWork(ranks);
  // The update takes the same time for every parameter.
  entry.update_s = Median(updates_) * static_cast<double>(layers[first].size()) /
                   static_cast<double>(layout_.size()) / whole.PartOfParameters(ranks);
  for (std::size_t layer = first; layer < first + count && layer < layers.size(); ++layer)
    entry.gradient_variance += variances[layer] / static_cast<double>(count);
  entry.evidence.count = static_cast<std::int64_t>(both.size());
  entry.evidence.spread = RelativeSpread(both);
  return entry;
}

}  // namespace adaptive_train
