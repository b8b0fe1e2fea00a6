// Training text as samples with global numbers, which never depend on ranks.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "core/result.h"
#include "runtime/data/token_file.h"

namespace adaptive_train {

/// A range of a token file, cut into windows of sequence + 1 tokens that overlap by one. A value
/// that shares the open file; any thread.
class TokenDataset {
 public:
  /// Tokens [begin, end) of `file`, at least sequence + 1 of them. Every token read must be below
  /// `vocab`. `what` names the range in messages: "data.train: PATH".
  static Result<TokenDataset> Of(std::shared_ptr<const TokenFile> file, std::string what,
                                 std::int64_t begin, std::int64_t end, std::int64_t sequence,
                                 std::int64_t vocab, std::uint64_t seed);

  /// The number of windows in the range, at least 1; one epoch visits each once.
  std::int64_t samples() const { return (end_ - begin_ - 1) / sequence_; }
  std::int64_t tokens() const { return end_ - begin_; }

  /// Reads the run's sample global_index >= 0: position global_index mod samples() of epoch
  /// global_index / samples(). The seed and the epoch determine the order. Both spans hold
  /// `sequence` tokens; targets are shifted by one token. Blocking.
  Result<void> Sample(std::int64_t global_index, std::span<std::int32_t> tokens,
                      std::span<std::int32_t> targets) const;
  /// Reads window `window` < samples() in the text's own order, for validation.
  Result<void> Window(std::int64_t window, std::span<std::int32_t> tokens,
                      std::span<std::int32_t> targets) const;
  /// The window that Sample(global_index) reads.
  std::int64_t WindowOf(std::int64_t global_index) const;
  /// Where documents begin within window `window`: positions in [1, sequence), ascending. Empty if
  /// the format has no documents. Windows run across documents, as in Megatron's GPTDataset; a mask
  /// between documents can be made from this.
  std::vector<std::int64_t> DocumentStartsIn(std::int64_t window) const;

  /// The open data behind it.
  const TokenFile& file() const { return *file_; }

  /// The entropy of the range's token frequencies in nats per token: the loss of a model that knows
  /// only how often each token occurs. Reads the whole range. Blocking.
  Result<double> UnigramEntropy() const;

 private:
  TokenDataset() = default;

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

/// All files of the data sets, to check that other nodes see them.
std::vector<std::string> FilesOf(const Datasets& data);

/// What the configuration says about data.
struct DataSettings {
  std::string train, validation;  // paths; validation may be "auto"
  std::string format = "auto";    // data.format, see TokenShard::Open
  std::int64_t sequence = 0, vocab = 0;
  std::uint64_t seed = 0;
};

/// Opens data.train and data.validation. "auto" validation is the last 5 % of train, which is then
/// excluded from training. If documents are known, the cut moves to the nearest border between two
/// that leaves validation with 1 to 10 %; otherwise it falls inside a document. Errors name key,
/// file and need: "data.train: PATH: 120 tokens, one sample needs sequence + 1 = 129".
Result<Datasets> OpenDatasets(const DataSettings& settings);

}  // namespace adaptive_train
