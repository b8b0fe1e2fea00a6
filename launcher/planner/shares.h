// Distributes samples or micro-batches over replicas so that the last one finishes earliest.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

namespace adaptive_train {

/// A replica of a pipeline: its m-th micro-batch leaves it after trip + (m - 1) period seconds.
struct PipelineReplica {
  double trip = 0, period = 0;
  std::int64_t most = 0;  // micro-batches that its memory allows
};

/// A replica of one stage. n samples in m = ceil(n / micro_batch) micro-batches take m fixed + n
/// per_sample seconds.
struct WholeReplica {
  double fixed = 0, per_sample = 0;
  std::int64_t micro_batch = 1;  // samples of a micro-batch, as requested
  std::int64_t fits = 1;         // samples of a micro-batch that memory allows
  double backward_fixed = 0, backward_per_sample = 0;  // of the last micro-batch: what hides
  std::int64_t Batches(std::int64_t samples) const {
    return (samples + micro_batch - 1) / micro_batch;
  }
  bool Allows(std::int64_t samples) const { return samples <= Batches(samples) * fits; }
  double LastBackward(std::int64_t samples) const {
    const std::int64_t batches = Batches(samples), each = (samples + batches - 1) / batches;
    return backward_fixed +
           backward_per_sample * static_cast<double>(samples - (batches - 1) * each);
  }
  double Seconds(std::int64_t samples) const {
    return static_cast<double>(Batches(samples)) * fixed +
           static_cast<double>(samples) * per_sample;
  }
};

/// Counts of at least 1 and at most `most` that add up to `total`, with the least maximum of
/// seconds. The result is exact, since seconds grow with the count. Returns false, with truncated
/// counts, if `total` is less than the replicas or more than they can take.
bool ShareOut(std::span<const PipelineReplica> replicas, std::int64_t total,
              std::vector<std::int64_t>& counts);
bool ShareOut(std::span<const WholeReplica> replicas, std::int64_t total,
              std::vector<std::int64_t>& counts);

/// What a step waits for besides the replicas: the gradients' exchange less what the shortest last
/// backward pass hides, but at least `least` seconds.
struct HiddenExchange {
  double all = 0, least = 0;
  double Seconds(double hidden) const { return std::max(all - hidden, least); }
};

/// Improves counts so that replicas and exchange together take less time. Exact if a bounded amount
/// of work suffices, else leaves them unchanged. Returns the seconds of both.
double ShareBeside(const HiddenExchange& exchange, std::span<const WholeReplica> replicas,
                   std::vector<std::int64_t>& counts);

}  // namespace adaptive_train
