// A rank's measurements of one optimizer step, their combination for all ranks, and the line of
// metrics.jsonl.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "core/result.h"

namespace adaptive_train {

/// One rank, one optimizer step. Times are in seconds, traffic is payload bytes that this rank
/// sent.
struct RankMetrics {
  std::int64_t step = 0;    // 1 is the first
  std::int64_t tokens = 0;  // of the whole global batch
  double loss = 0;          // mean over the global batch, nats per token
  double lr = 0;
  double grad_norm = 0;  // before clipping
  double loss_scale = 1;
  bool skipped = false;  // true: the gradient was not finite and the update was skipped
  double step_s = 0;
  double compute_s = 0;  // the parts add up to step_s
  double exposed_comm_s = 0;
  double bubble_s = 0;
  double other_s = 0;
  // With other stages, whose waiting for this rank they are a part of; 0 without, and where steps go
  // on into each other.
  double opening_comm_s = 0;  // exposed_comm_s up to the end of the first forward: weights gathered
  double settling_s = 0;      // from the end of the last backward to the step's closing agreement
  std::int64_t replica = 0;   // of its place in the plan
  std::int64_t samples = 0;   // sequences of its replica
  double flops = 0;           // model FLOPs of these
  double product_peak = 0;    // FLOP/s that this rank's device reached on a matrix product
  std::int64_t grad_bytes = 0;
  std::int64_t param_bytes = 0;
  std::int64_t activation_bytes = 0;
  double density = 1;                 // gradient entries sent / all
  std::int64_t gradient_entries = 0;  // of this rank's stage
  double comm_cpu_s = 0;      // processor time of the exchange: selecting, packing, transfers
  std::int64_t unpeeled = 0;  // buckets whose count sketch could not be peeled
  std::int64_t peak_memory_bytes = 0;
  std::optional<double> validation_loss;
};

/// One optimizer step of all ranks. Times in seconds, traffic in bytes.
struct StepMetrics {
  std::int64_t step = 0;
  std::int64_t tokens = 0;  // of the global batch
  double loss = 0;
  std::optional<double> loss_z;  // standard deviations above the trend of the steps before
  double lr = 0;
  double grad_norm = 0;
  double loss_scale = 1;
  bool skipped = false;
  double step_s = 0;  // this and its parts: of the rank that computed longest
  double tokens_per_s = 0;
  double tflops = 0;  // 1e12 FLOP/s, summed over ranks
  double mfu = 0;     // against the sum of the devices' measured product peaks; 0 = no peak known
  double compute_s = 0;
  double exposed_comm_s = 0;
  double bubble_s = 0;
  double other_s = 0;
  std::int64_t grad_bytes = 0;  // this and the next two: summed over ranks
  std::int64_t param_bytes = 0;
  std::int64_t activation_bytes = 0;
  double density = 1;                  // gradient entries sent / all, of all ranks
  double comm_cpu_s = 0;               // of the rank with most
  std::int64_t unpeeled = 0;           // buckets whose count sketch could not be peeled
  std::int64_t peak_memory_bytes = 0;  // of the largest rank
  std::optional<double> validation_loss;
};

/// Combines the ranks of one step. Bytes and FLOPs are summed; memory is the largest rank's. Step
/// time and its parts are of the rank that computed longest: every step ends in a sum over all
/// ranks, so all take equally long. Two waits are booked as what they are, which the rank itself
/// could not tell: for that sum, while other stages of its replica were at their passes, as bubble;
/// and for a stage whose weights were on their way as communication. `ranks` holds every rank of
/// one step, at least one.
StepMetrics CombineRanks(std::span<const RankMetrics> ranks);

/// exp(loss): the number of equally likely tokens among which the model is undecided. Infinite if
/// too large for a double.
double Perplexity(double loss);

/// One line of metrics.jsonl without its line end. A number that is not finite becomes null.
std::string MetricsLine(const StepMetrics& step);

}  // namespace adaptive_train
