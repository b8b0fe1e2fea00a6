// Windows of a text, their order, and their checks.
#include "runtime/data/token_dataset.h"

#include <fmt/format.h>

#include <algorithm>
#include <cassert>
#include <cmath>
#include <cstdlib>
#include <utility>
#include <vector>

#include "runtime/data/permutation.h"

namespace adaptive_train {

Result<TokenDataset> TokenDataset::Of(std::shared_ptr<const TokenFile> file, std::string what,
                                      std::int64_t begin, std::int64_t end, std::int64_t sequence,
                                      std::int64_t vocab, std::uint64_t seed) {
  assert(0 <= begin && begin <= end && end <= file->size() && sequence >= 1);
  if (end - begin < sequence + 1) {
    return Fail(fmt::format("{}: {} tokens, one sample needs sequence + 1 = {}", what, end - begin,
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
  if (Result<void> read = file_->Read(first, text, vocab_); !read) return read;
  std::copy(text.begin(), text.end() - 1, tokens.begin());
  std::copy(text.begin() + 1, text.end(), targets.begin());
  return {};
}

std::vector<std::int64_t> TokenDataset::DocumentStartsIn(std::int64_t window) const {
  assert(window >= 0 && window < samples());
  const std::int64_t first = begin_ + window * sequence_;
  const std::vector<std::int64_t>& starts = file_->document_starts();
  std::vector<std::int64_t> places;
  for (auto start = std::upper_bound(starts.begin(), starts.end(), first);
       start != starts.end() && *start < first + sequence_; ++start)
    places.push_back(*start - first);
  return places;
}

Result<double> TokenDataset::UnigramEntropy() const {
  std::vector<std::int64_t> counts(static_cast<std::size_t>(vocab_));
  std::vector<std::int32_t> piece(std::size_t{1} << 16);
  for (std::int64_t first = begin_; first < end_;) {
    piece.resize(
        static_cast<std::size_t>(std::min(end_ - first, static_cast<std::int64_t>(piece.size()))));
    if (Result<void> read = file_->Read(first, piece, vocab_); !read)
      return tl::unexpected(read.error());
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

Result<SharedFile> OpenShared(const char* key, const std::string& path, TokenFormat format) {
  Result<TokenFile> file = TokenFile::Open(key, path, format);
  if (!file) return tl::unexpected(file.error());
  return std::make_shared<const TokenFile>(std::move(*file));
}

/// Where "auto" validation begins, see OpenDatasets.
std::int64_t ValidationBegin(const TokenFile& file) {
  const std::int64_t size = file.size(), cut = size - size / 20;
  const std::vector<std::int64_t>& starts = file.document_starts();
  const auto after = std::lower_bound(starts.begin(), starts.end(), cut);
  std::int64_t best = cut, distance = size;
  const auto consider = [&](std::int64_t start) {
    const std::int64_t left = size - start;
    if (left < size / 100 || left > size / 10 || std::abs(start - cut) >= distance) return;
    best = start;
    distance = std::abs(start - cut);
  };
  if (after != starts.begin()) consider(*(after - 1));
  if (after != starts.end()) consider(*after);
  return best;
}

}  // namespace

std::vector<std::string> FilesOf(const Datasets& data) {
  std::vector<std::string> files;
  for (const TokenDataset* set : {&data.train, &data.validation}) {
    for (const TokenShard& shard : set->file().shards())
      files.insert(files.end(), shard.paths().begin(), shard.paths().end());
    if (&data.train.file() == &data.validation.file()) break;
  }
  return files;
}

Result<Datasets> OpenDatasets(const DataSettings& settings) {
  const auto range = [&](const SharedFile& file, std::string what, std::int64_t begin,
                         std::int64_t end) {
    return TokenDataset::Of(file, std::move(what), begin, end, settings.sequence, settings.vocab,
                            settings.seed);
  };
  const auto all_of = [&](const SharedFile& file) {
    return range(file, file->where(), 0, file->size());
  };
  const Result<TokenFormat> format = ParseTokenFormat(settings.format);
  if (!format) return FailIn("data.format", format.error());
  Result<SharedFile> train_file = OpenShared("data.train", settings.train, *format);
  if (!train_file) return tl::unexpected(train_file.error());
  Result<TokenDataset> whole = all_of(*train_file);
  if (!whole) return tl::unexpected(whole.error());
  if (settings.validation != "auto") {
    Result<SharedFile> validation_file =
        OpenShared("data.validation", settings.validation, *format);
    if (!validation_file) return tl::unexpected(validation_file.error());
    Result<TokenDataset> own = all_of(*validation_file);
    if (!own) return tl::unexpected(own.error());
    return Datasets{std::move(*whole), std::move(*own)};
  }
  const std::int64_t size = (*train_file)->size(), train_end = ValidationBegin(**train_file);
  Result<TokenDataset> tail =
      range(*train_file, "data.validation: the last 5 % of " + settings.train, train_end, size);
  if (!tail) {
    tail.error().message += "; name a validation file, or train on a longer text";
    return tl::unexpected(tail.error());
  }
  Result<TokenDataset> head = range(*train_file, (*train_file)->where(), 0, train_end);
  if (!head) return tl::unexpected(head.error());
  return Datasets{std::move(*head), std::move(*tail)};
}

}  // namespace adaptive_train
