// From global sample numbers to tokens and targets.
#include "runtime/train/sample_loader.h"

#include "runtime/fatal_error.h"

namespace adaptive_train {
namespace {

/// The masks of validation: of a round that no step has.
constexpr std::uint32_t kValidationRound = 0xffff'ffff;

}  // namespace

SampleLoader::SampleLoader(const ModelDims& dims, const Datasets& data, std::uint64_t seed,
                           std::int64_t global_batch)
    : sequence_(dims.sequence), global_batch_(global_batch), data_(data) {
  if (!Architecture::Of(dims.kind).causal) masked_.emplace(dims.sequence, dims.vocab, seed);
}

std::span<std::int32_t> SampleLoader::At(std::vector<std::int32_t>& all, std::int64_t index) const {
  const auto length = static_cast<std::size_t>(sequence_);
  return std::span(all).subspan(static_cast<std::size_t>(index) * length, length);
}

void SampleLoader::Resize(std::int64_t count) {
  tokens_.resize(static_cast<std::size_t>(count * sequence_));
  targets_.resize(tokens_.size());
}

void SampleLoader::GoOnAfter(std::int64_t step, std::int64_t samples) {
  steps_before_ = step;
  samples_before_ = samples;
}

Samples SampleLoader::Training(std::int64_t step, std::int64_t first, std::int64_t count) {
  Resize(count);
  const SamplePlace place = PlaceOf(step, first);
  for (std::int64_t i = 0; i < count; ++i) {
    OrThrow(data_.train.Sample(SamplesBefore(step) + first + i, At(tokens_, i), At(targets_, i)),
            RankExit::kSetup, "reading training data");
    if (masked_)
      masked_->Hide(place.step, place.first_sample + static_cast<std::uint32_t>(i), At(tokens_, i),
                    At(targets_, i));
  }
  return {tokens_, targets_, count, place};
}

Samples SampleLoader::Validation(std::span<const std::int64_t> windows) {
  const auto count = static_cast<std::int64_t>(windows.size());
  Resize(count);
  for (std::int64_t i = 0; i < count; ++i) {
    const std::int64_t window = windows[static_cast<std::size_t>(i)];
    OrThrow(data_.validation.Window(window, At(tokens_, i), At(targets_, i)), RankExit::kSetup,
            "reading validation data");
    if (masked_)
      masked_->Hide(kValidationRound, static_cast<std::uint32_t>(window), At(tokens_, i),
                    At(targets_, i));
  }
  return {tokens_, targets_, count, {}};
}

}  // namespace adaptive_train
