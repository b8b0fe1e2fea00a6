// What a rank measured in one optimizer step, and the line of metrics.jsonl that all ranks'
// measurements make.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "core/result.h"

namespace adaptive_train {

/// One rank, one optimizer step. Times in seconds, traffic as payload bytes this rank sent.
struct RankMetrics {
  std::int64_t step = 0;    // 1 is the first
  std::int64_t tokens = 0;  // of the whole global batch
  double loss = 0;          // mean over the global batch, nats per token
  double lr = 0;
  double grad_norm = 0;  // before clipping
  double loss_scale = 1;
  bool skipped = false;  // true: the gradient was not finite and the update left out
  double step_s = 0;
  double compute_s = 0;  // the parts add up to step_s
  double exposed_comm_s = 0;
  double bubble_s = 0;
  double other_s = 0;
  double flops = 0;         // model FLOPs of this rank's samples
  double product_peak = 0;  // FLOP/s that this rank's device reached on a matrix product
  std::int64_t grad_bytes = 0;
  std::int64_t param_bytes = 0;
  std::int64_t activation_bytes = 0;
  double density = 1;  // gradient entries exchanged / all
  std::int64_t peak_memory_bytes = 0;
  std::optional<double> validation_loss;
};

/// One line of metrics.jsonl without its newline: bytes and FLOPs summed over ranks, memory of the
/// largest, step time and its parts of
/// the rank that computed longest: every step ends in a sum over all ranks, so all take equally
/// long. `ranks` holds every rank of one step.
std::string MetricsLine(std::span<const RankMetrics> ranks);

/// Tokens of the global batch per second in the time of the rank that computed longest.
double TokensPerSecond(std::span<const RankMetrics> ranks);

}  // namespace adaptive_train
