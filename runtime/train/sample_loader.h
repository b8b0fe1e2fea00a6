// What a rank trains on: samples of the data as micro-batches, with the targets of the model's
// objective.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "core/model_shape.h"
#include "runtime/data/masked_language.h"
#include "runtime/data/token_dataset.h"
#include "runtime/model/transformer_stage.h"

namespace adaptive_train {

/// Causal models predict each next token, masked ones what MaskedLanguage hides. Throws FatalError
/// where the data cannot be read. Not thread-safe.
class SampleLoader {
 public:
  /// `data` must outlive the loader.
  SampleLoader(const ModelDims& dims, const Datasets& data, std::uint64_t seed,
               std::int64_t global_batch);

  /// Targets of one sample that count: losses are divided by them.
  std::int64_t targets_per_sample() const {
    return masked_ ? masked_->targets_per_sample() : sequence_;
  }

  /// The next step, `step` + 1, begins with sample number `samples` of the run, counted from 0: a
  /// run goes on whose batches so far were of another size.
  void GoOnAfter(std::int64_t step, std::int64_t samples);
  /// Samples of the run before step 1, 2, ...
  std::int64_t SamplesBefore(std::int64_t step) const {
    return samples_before_ + (step - 1 - steps_before_) * global_batch_;
  }
  /// Sample `first` of the global batch of step 1, 2, ..., as passes name it.
  static SamplePlace PlaceOf(std::int64_t step, std::int64_t first) {
    return {static_cast<std::uint32_t>(step), static_cast<std::uint32_t>(first)};
  }
  /// Samples [first, first + count) of the global batch of step 1, 2, ...; valid until the next
  /// call.
  Samples Training(std::int64_t step, std::int64_t first, std::int64_t count);
  /// The named windows of the validation text, always with the same masks; valid until the next
  /// call.
  Samples Validation(std::span<const std::int64_t> windows);

 private:
  /// Where sample number `index` of the micro-batch goes.
  std::span<std::int32_t> At(std::vector<std::int32_t>& all, std::int64_t index) const;
  void Resize(std::int64_t count);

  std::int64_t sequence_, global_batch_;
  std::int64_t steps_before_ = 0, samples_before_ = 0;  // that GoOnAfter was told
  const Datasets& data_;
  std::optional<MaskedLanguage> masked_;
  std::vector<std::int32_t> tokens_, targets_;
};

}  // namespace adaptive_train
