// Training text as samples with global numbers: which sample is which never depends on ranks.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "core/result.h"
#include "runtime/data/token_file.h"

namespace adaptive_train {

/// A range of a token file cut into windows of sequence + 1 tokens that overlap by one. A value
/// that shares the open file; any thread.
class TokenDataset {
 public:
  /// Tokens [begin, end) of `file`, at least sequence + 1 of them. Every token read is checked to
  /// lie below `vocab`. `what` names the range in messages: "data.train: PATH".
  static Result<TokenDataset> Of(std::shared_ptr<const TokenFile> file, std::string what,
                                 std::int64_t begin, std::int64_t end, std::int64_t sequence,
                                 std::int64_t vocab, std::uint64_t seed);

  /// Windows in the range, at least 1; one epoch visits each once.
  std::int64_t samples() const { return (end_ - begin_ - 1) / sequence_; }
  std::int64_t tokens() const { return end_ - begin_; }

  /// Sample number global_index >= 0 of the run: position global_index mod samples() of epoch
  /// global_index / samples(), whose order follows from the seed and the epoch. Both spans hold
  /// `sequence` tokens; targets are the tokens one further on. Blocking.
  Result<void> Sample(std::int64_t global_index, std::span<std::int32_t> tokens,
                      std::span<std::int32_t> targets) const;
  /// Window number `window` < samples() of the text, in the text's own order: for validation.
  Result<void> Window(std::int64_t window, std::span<std::int32_t> tokens,
                      std::span<std::int32_t> targets) const;
  /// The window that Sample(global_index) reads.
  std::int64_t WindowOf(std::int64_t global_index) const;

  /// The entropy of the range's token frequencies in nats per token: what a model reaches that
  /// knows how often each token comes and nothing else. Reads the whole range. Blocking.
  Result<double> UnigramEntropy() const;

 private:
  TokenDataset() = default;
  Result<void> CheckVocab(std::span<const std::int32_t> tokens, std::int64_t first) const;

  std::shared_ptr<const TokenFile> file_;
  std::string what_;
  std::int64_t begin_ = 0, end_ = 0, sequence_ = 0, vocab_ = 0;
  std::uint64_t seed_ = 0;
};

/// The two texts of a run.
struct Datasets {
  TokenDataset train;
  TokenDataset validation;
};

/// Opens data.train and data.validation; "auto" validation is the last 5 % of train, which training
/// then leaves out. Errors name key, file and need: "data.train: PATH: 120 bytes, one sample needs
/// sequence + 1 = 129".
Result<Datasets> OpenDatasets(const std::string& train, const std::string& validation,
                              std::int64_t sequence, std::int64_t vocab, std::uint64_t seed);

}  // namespace adaptive_train
