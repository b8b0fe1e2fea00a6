#include "core/step_metrics.h"

#include <algorithm>

#include "core/json.h"

namespace adaptive_train {
namespace {

const RankMetrics& Slowest(std::span<const RankMetrics> ranks) {
  return *std::max_element(
      ranks.begin(), ranks.end(),
      [](const RankMetrics& a, const RankMetrics& b) { return a.compute_s < b.compute_s; });
}

template <class T>
T Sum(std::span<const RankMetrics> ranks, T RankMetrics::*field) {
  T sum{};
  for (const RankMetrics& rank : ranks) sum += rank.*field;
  return sum;
}

}  // namespace

double TokensPerSecond(std::span<const RankMetrics> ranks) {
  const RankMetrics& slowest = Slowest(ranks);
  return slowest.step_s > 0 ? static_cast<double>(slowest.tokens) / slowest.step_s : 0;
}

std::string MetricsLine(std::span<const RankMetrics> ranks) {
  const RankMetrics& first = ranks.front();
  const RankMetrics& slowest = Slowest(ranks);
  const double flops = Sum(ranks, &RankMetrics::flops);
  const double peak = Sum(ranks, &RankMetrics::product_peak);
  const double rate = slowest.step_s > 0 ? flops / slowest.step_s : 0;
  std::int64_t memory = 0;
  for (const RankMetrics& rank : ranks) memory = std::max(memory, rank.peak_memory_bytes);
  nlohmann::ordered_json json = {{"format_version", kFormatVersion},
                                 {"step", first.step},
                                 {"tokens", first.tokens},
                                 {"loss", first.loss},
                                 {"lr", first.lr},
                                 {"grad_norm", first.grad_norm},
                                 {"loss_scale", first.loss_scale},
                                 {"skipped", first.skipped},
                                 {"step_s", slowest.step_s},
                                 {"tokens_per_s", TokensPerSecond(ranks)},
                                 {"tflops", rate / 1e12},
                                 {"mfu", peak > 0 ? rate / peak : 0},
                                 {"compute_s", slowest.compute_s},
                                 {"exposed_comm_s", slowest.exposed_comm_s},
                                 {"bubble_s", slowest.bubble_s},
                                 {"other_s", slowest.other_s},
                                 {"grad_bytes", Sum(ranks, &RankMetrics::grad_bytes)},
                                 {"param_bytes", Sum(ranks, &RankMetrics::param_bytes)},
                                 {"activation_bytes", Sum(ranks, &RankMetrics::activation_bytes)},
                                 {"density", first.density},
                                 {"peak_memory_bytes", memory}};
  if (first.validation_loss) json["validation_loss"] = *first.validation_loss;
  return json.dump();
}

}  // namespace adaptive_train
