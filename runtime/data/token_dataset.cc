// Windows of a text, their order, and what they must satisfy.
#include "runtime/data/token_dataset.h"

#include <fmt/format.h>

#include <algorithm>
#include <cassert>
#include <cmath>
#include <utility>
#include <vector>

#include "runtime/data/permutation.h"

namespace adaptive_train {

Result<TokenDataset> TokenDataset::Of(std::shared_ptr<const TokenFile> file, std::string what,
                                      std::int64_t begin, std::int64_t end, std::int64_t sequence,
                                      std::int64_t vocab, std::uint64_t seed) {
  assert(0 <= begin && begin <= end && end <= file->size() && sequence >= 1);
  if (end - begin < sequence + 1) {
    return Fail(fmt::format("{}: {} bytes, one sample needs sequence + 1 = {}", what, end - begin,
                            sequence + 1));
  }
  TokenDataset dataset;
  dataset.file_ = std::move(file);
  dataset.what_ = std::move(what);
  dataset.begin_ = begin;
  dataset.end_ = end;
  dataset.sequence_ = sequence;
  dataset.vocab_ = vocab;
  dataset.seed_ = seed;
  return dataset;
}

std::int64_t TokenDataset::WindowOf(std::int64_t global_index) const {
  assert(global_index >= 0);
  const auto epoch = static_cast<std::uint32_t>(global_index / samples());
  return Permutation(samples(), seed_, epoch)(global_index % samples());
}

Result<void> TokenDataset::Sample(std::int64_t global_index, std::span<std::int32_t> tokens,
                                  std::span<std::int32_t> targets) const {
  return Window(WindowOf(global_index), tokens, targets);
}

Result<void> TokenDataset::Window(std::int64_t window, std::span<std::int32_t> tokens,
                                  std::span<std::int32_t> targets) const {
  assert(window >= 0 && window < samples());
  assert(static_cast<std::int64_t>(tokens.size()) == sequence_ && targets.size() == tokens.size());
  const std::int64_t first = begin_ + window * sequence_;
  std::vector<std::int32_t> text(tokens.size() + 1);
  if (Result<void> read = file_->Read(first, text); !read) return read;
  if (Result<void> check = CheckVocab(text, first); !check) return check;
  std::copy(text.begin(), text.end() - 1, tokens.begin());
  std::copy(text.begin() + 1, text.end(), targets.begin());
  return {};
}

Result<void> TokenDataset::CheckVocab(std::span<const std::int32_t> tokens,
                                      std::int64_t first) const {
  const auto outside = std::find_if(tokens.begin(), tokens.end(),
                                    [&](std::int32_t token) { return token >= vocab_; });
  if (outside == tokens.end()) return {};
  return Fail(fmt::format("{}: byte {} has the value {}, model.vocab = {} allows 0 to {}", what_,
                          first + (outside - tokens.begin()), *outside, vocab_, vocab_ - 1));
}

Result<double> TokenDataset::UnigramEntropy() const {
  std::vector<std::int64_t> counts(static_cast<std::size_t>(vocab_));
  std::vector<std::int32_t> piece(std::size_t{1} << 16);
  for (std::int64_t first = begin_; first < end_;) {
    piece.resize(
        static_cast<std::size_t>(std::min(end_ - first, static_cast<std::int64_t>(piece.size()))));
    if (Result<void> read = file_->Read(first, piece); !read) return tl::unexpected(read.error());
    if (Result<void> check = CheckVocab(piece, first); !check) return tl::unexpected(check.error());
    for (const std::int32_t token : piece) ++counts[static_cast<std::size_t>(token)];
    first += static_cast<std::int64_t>(piece.size());
  }
  double entropy = 0;
  for (const std::int64_t count : counts) {
    if (count == 0) continue;
    const double frequency = static_cast<double>(count) / static_cast<double>(tokens());
    entropy -= frequency * std::log(frequency);
  }
  return entropy;
}

namespace {

using SharedFile = std::shared_ptr<const TokenFile>;

Result<SharedFile> OpenShared(const char* key, const std::string& path) {
  Result<TokenFile> file = TokenFile::Open(key, path);
  if (!file) return tl::unexpected(file.error());
  return std::make_shared<const TokenFile>(std::move(*file));
}

}  // namespace

Result<Datasets> OpenDatasets(const std::string& train, const std::string& validation,
                              std::int64_t sequence, std::int64_t vocab, std::uint64_t seed) {
  const auto all_of = [&](const SharedFile& file) {
    return TokenDataset::Of(file, file->where(), 0, file->size(), sequence, vocab, seed);
  };
  Result<SharedFile> train_file = OpenShared("data.train", train);
  if (!train_file) return tl::unexpected(train_file.error());
  Result<TokenDataset> whole = all_of(*train_file);
  if (!whole) return tl::unexpected(whole.error());
  if (validation != "auto") {
    Result<SharedFile> validation_file = OpenShared("data.validation", validation);
    if (!validation_file) return tl::unexpected(validation_file.error());
    Result<TokenDataset> own = all_of(*validation_file);
    if (!own) return tl::unexpected(own.error());
    return Datasets{std::move(*whole), std::move(*own)};
  }
  const std::int64_t size = (*train_file)->size(), train_end = size - size / 20;
  Result<TokenDataset> tail =
      TokenDataset::Of(*train_file, "data.validation: the last 5 % of " + train, train_end, size,
                       sequence, vocab, seed);
  if (!tail) {
    tail.error().message += "; name a validation file, or train on a longer text";
    return tl::unexpected(tail.error());
  }
  Result<TokenDataset> head =
      TokenDataset::Of(*train_file, (*train_file)->where(), 0, train_end, sequence, vocab, seed);
  if (!head) return tl::unexpected(head.error());
  return Datasets{std::move(*head), std::move(*tail)};
}

}  // namespace adaptive_train
