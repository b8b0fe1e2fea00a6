#include "runtime/exchange/gradient_reducer.h"

#include <algorithm>
#include <cassert>

namespace adaptive_train {

GradientReducer::GradientReducer(Communicator& communicator, std::span<float> gradients,
                                 std::size_t bucket_elements)
    : communicator_(communicator),
      gradients_(gradients),
      bucket_elements_(bucket_elements),
      final_from_(gradients.size()),
      started_from_(gradients.size()) {}

void GradientReducer::Add(std::size_t begin, [[maybe_unused]] std::size_t end) {
  assert(end == final_from_ && begin <= end);
  final_from_ = begin;
  while (started_from_ > final_from_) {
    const std::size_t size = std::min(bucket_elements_, started_from_);
    if (started_from_ - size < final_from_) break;  // not all of the bucket is final
    started_from_ -= size;
    requests_.push_back(
        communicator_.AllReduce(Purpose::kGradient, gradients_.subspan(started_from_, size)));
  }
}

tl::expected<void, CommError> GradientReducer::Finish(Deadline deadline) {
  assert(started_from_ == 0);
  tl::expected<void, CommError> outcome;
  for (Request& request : requests_) {
    auto done = request.Wait(outcome ? deadline : std::chrono::steady_clock::now());
    if (!done && outcome) outcome = done;
  }
  requests_.clear();
  final_from_ = started_from_ = gradients_.size();
  return outcome;
}

}  // namespace adaptive_train
