#include "core/step_metrics.h"

#include <algorithm>
#include <cmath>

#include "core/json.h"

namespace adaptive_train {
namespace {

/// Of what `rank` waited when its passes were over, the time until those of its replica's stages
/// were: the closing agreement is at the same moment everywhere.
double DrainSeconds(const RankMetrics& rank, std::span<const RankMetrics> ranks) {
  double least = rank.settling_s;
  for (const RankMetrics& other : ranks)
    if (other.replica == rank.replica) least = std::min(least, other.settling_s);
  return std::min(rank.settling_s - least, rank.exposed_comm_s);
}

/// Of what `rank` waited for its replica's stages, the time in which one waited for its weights.
double OpeningSeconds(const RankMetrics& rank, std::span<const RankMetrics> ranks) {
  double most = rank.opening_comm_s;
  for (const RankMetrics& other : ranks)
    if (other.replica == rank.replica) most = std::max(most, other.opening_comm_s);
  return std::min(most - rank.opening_comm_s, rank.bubble_s);
}

}  // namespace

StepMetrics CombineRanks(std::span<const RankMetrics> ranks) {
  const RankMetrics& slowest = *std::max_element(
      ranks.begin(), ranks.end(),
      [](const RankMetrics& a, const RankMetrics& b) { return a.compute_s < b.compute_s; });
  StepMetrics all;
  all.step = slowest.step;
  all.tokens = slowest.tokens;
  all.loss = slowest.loss;
  all.lr = slowest.lr;
  all.grad_norm = slowest.grad_norm;
  all.loss_scale = slowest.loss_scale;
  all.skipped = slowest.skipped;
  all.step_s = slowest.step_s;
  all.compute_s = slowest.compute_s;
  const double bubble = DrainSeconds(slowest, ranks) - OpeningSeconds(slowest, ranks);
  all.exposed_comm_s = slowest.exposed_comm_s - bubble;
  all.bubble_s = slowest.bubble_s + bubble;
  all.other_s = slowest.other_s;
  all.unpeeled = slowest.unpeeled;
  double flops = 0, peak = 0, entries = 0, sent = 0;
  for (const RankMetrics& rank : ranks) {
    flops += rank.flops;
    peak += rank.product_peak;
    all.grad_bytes += rank.grad_bytes;
    all.param_bytes += rank.param_bytes;
    all.activation_bytes += rank.activation_bytes;
    all.comm_cpu_s = std::max(all.comm_cpu_s, rank.comm_cpu_s);
    entries += static_cast<double>(rank.gradient_entries);
    sent += rank.density * static_cast<double>(rank.gradient_entries);
    all.peak_memory_bytes = std::max(all.peak_memory_bytes, rank.peak_memory_bytes);
    // With pipeline stages only ranks that hold the head know it.
    if (rank.validation_loss) all.validation_loss = rank.validation_loss;
  }
  all.density = entries > 0 ? sent / entries : 1;
  if (all.step_s > 0) {
    all.tokens_per_s = static_cast<double>(all.tokens) / all.step_s;
    all.tflops = flops / all.step_s / 1e12;
    all.mfu = peak > 0 ? flops / all.step_s / peak : 0;
  }
  return all;
}

double Perplexity(double loss) { return std::exp(loss); }

std::string MetricsLine(const StepMetrics& step) {
  nlohmann::ordered_json json = {{"format_version", kFormatVersion},
                                 {"step", step.step},
                                 {"tokens", step.tokens},
                                 {"loss", step.loss},
                                 {"lr", step.lr},
                                 {"grad_norm", step.grad_norm},
                                 {"loss_scale", step.loss_scale},
                                 {"skipped", step.skipped},
                                 {"step_s", step.step_s},
                                 {"tokens_per_s", step.tokens_per_s},
                                 {"tflops", step.tflops},
                                 {"mfu", step.mfu},
                                 {"compute_s", step.compute_s},
                                 {"exposed_comm_s", step.exposed_comm_s},
                                 {"bubble_s", step.bubble_s},
                                 {"other_s", step.other_s},
                                 {"grad_bytes", step.grad_bytes},
                                 {"param_bytes", step.param_bytes},
                                 {"activation_bytes", step.activation_bytes},
                                 {"density", step.density},
                                 {"comm_cpu_s", step.comm_cpu_s},
                                 {"unpeeled", step.unpeeled},
                                 {"peak_memory_bytes", step.peak_memory_bytes}};
  if (step.loss_z) json["loss_z"] = *step.loss_z;
  if (step.validation_loss) {
    json["validation_loss"] = *step.validation_loss;
    json["validation_perplexity"] = Perplexity(*step.validation_loss);
  }
  return json.dump();
}

}  // namespace adaptive_train
