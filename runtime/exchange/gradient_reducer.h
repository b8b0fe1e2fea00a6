// Sums gradients over the data-parallel ranks while backward still runs.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "runtime/comm/communicator.h"

namespace adaptive_train {

/// Cuts the gradient arena into buckets from its end, where backward finishes first, and starts the
/// all-reduce of a bucket as soon as all of it is final. Buckets depend on the arena's size alone,
/// so all ranks agree on them. One thread; the arena must stay where it is.
class GradientReducer {
 public:
  static constexpr std::size_t kBucketElements = std::size_t{1} << 20;

  GradientReducer(Communicator& communicator, std::span<float> gradients,
                  std::size_t bucket_elements = kBucketElements);

  /// Gradients in [begin, end) are final in this step. Ranges come from the arena's end to its
  /// beginning without gaps. Never blocks.
  void Add(std::size_t begin, std::size_t end);
  /// Waits until every gradient is the sum over all ranks, and is ready for the next step. All of
  /// the arena must have been added. Fails with the first bucket's error.
  tl::expected<void, CommError> Finish(Deadline deadline);

 private:
  Communicator& communicator_;
  const std::span<float> gradients_;
  const std::size_t bucket_elements_;
  std::size_t final_from_;    // [final_from_, size) is final
  std::size_t started_from_;  // [started_from_, size) is under way
  std::vector<Request> requests_;
};

}  // namespace adaptive_train
