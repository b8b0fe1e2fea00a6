// Finds shards and reads across their borders.
#include "runtime/data/token_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <cassert>
#include <filesystem>
#include <iterator>
#include <set>
#include <string_view>
#include <system_error>
#include <utility>

#include "runtime/data/megatron_index.h"

namespace adaptive_train {
namespace {

/// Whether `name` matches `pattern`, where '*' stands for any text.
bool Matches(std::string_view pattern, std::string_view name) {
  const std::size_t star = pattern.find('*');
  if (star == pattern.npos) return pattern == name;
  if (!name.starts_with(pattern.substr(0, star))) return false;
  const std::string_view rest = pattern.substr(star + 1);
  for (std::size_t begin = star; begin <= name.size(); ++begin) {
    if (Matches(rest, name.substr(begin))) return true;
  }
  return false;
}

/// PREFIX.idx, PREFIX.model and PREFIX.json belong to PREFIX.bin.
bool GoesWithBin(const std::string& path, const std::set<std::string>& all) {
  const std::filesystem::path name(path);
  const std::string extension = name.extension().string();
  if (extension != ".idx" && extension != ".model" && extension != ".json") return false;
  return all.contains(std::filesystem::path(name).replace_extension(".bin").string());
}

Result<std::vector<std::string>> ShardsOf(const std::string& path) {
  const std::filesystem::path pattern(path);
  std::error_code error;
  if (pattern.filename().string().find('*') == std::string::npos ||
      std::filesystem::exists(pattern, error))
    return std::vector<std::string>{path};
  const std::filesystem::path folder = pattern.parent_path();
  std::set<std::string> all;
  std::filesystem::directory_iterator entry(folder.empty() ? "." : folder, error), end;
  for (; !error && entry != end; entry.increment(error)) {
    const std::string name = entry->path().filename().string();
    if (Matches(pattern.filename().string(), name)) all.insert((folder / name).string());
  }
  if (error) return Fail(fmt::format("{}: {}", path, error.message()));
  std::vector<std::string> shards;
  std::copy_if(all.begin(), all.end(), std::back_inserter(shards),
               [&](const std::string& file) { return !GoesWithBin(file, all); });
  if (shards.empty()) return Fail(fmt::format("{}: no file matches", path));
  return shards;
}

}  // namespace

Result<TokenFile> TokenFile::Open(const std::string& key, const std::string& path,
                                  TokenFormat format) {
  if (path.empty()) return Fail(key + ": no file named; it takes the path of a file of tokens");
  const Result<std::vector<std::string>> paths = ShardsOf(path);
  if (!paths) return FailIn(key, paths.error());
  TokenFile file;
  file.key_ = key;
  file.where_ = key + ": " + path;
  for (const std::string& shard_path : *paths) {
    Result<TokenShard> shard = TokenShard::Open(shard_path, format);
    if (!shard) return FailIn(key, shard.error());
    if (Result<void> added = file.Add(std::move(*shard)); !added) return FailIn(key, added.error());
  }
  return file;
}

Result<void> TokenFile::Add(TokenShard shard) {
  if (!shards_.empty() && shard.format() != shards_.front().format()) {
    return Fail(fmt::format("{}: it is {} ({}), but the shards before it are {}; all must be alike",
                            shard.paths().front(), ToString(shard.format()), shard.reason(),
                            ToString(shards_.front().format())));
  }
  const std::int64_t begin = size();
  if (shard.size() > kMostTokens - begin)
    return Fail(fmt::format("{}: more than {} tokens", shard.paths().front(), kMostTokens));
  first_.push_back(begin + shard.size());
  for (const std::int64_t start : shard.document_starts())
    document_starts_.push_back(begin + start);
  shards_.push_back(std::move(shard));
  return {};
}

std::string TokenFile::Description() const {
  const TokenShard& shard = shards_.front();
  std::string text = fmt::format("{} ({}): {} {} tokens", ToString(shard.format()), shard.reason(),
                                 size(), FactsOf(shard.type()).name);
  if (!document_starts_.empty()) {
    text += fmt::format(" in {} document{}", document_starts_.size(),
                        document_starts_.size() == 1 ? "" : "s");
  }
  if (shards_.size() > 1) text += fmt::format(", {} shards", shards_.size());
  return text;
}

Result<void> TokenFile::Read(std::int64_t first, std::span<std::int32_t> tokens,
                             std::int64_t vocab) const {
  assert(first >= 0 && static_cast<std::int64_t>(tokens.size()) <= size() - first);
  auto shard = std::upper_bound(first_.begin(), first_.end(), first) - first_.begin() - 1;
  while (!tokens.empty()) {
    const auto number = static_cast<std::size_t>(shard);
    const std::int64_t here =
        std::min(first_[number + 1] - first, static_cast<std::int64_t>(tokens.size()));
    const auto piece = tokens.first(static_cast<std::size_t>(here));
    if (Result<void> read = shards_[number].Read(first - first_[number], piece, vocab); !read)
      return FailIn(key_, read.error());
    tokens = tokens.subspan(piece.size());
    first += here;
    ++shard;
  }
  return {};
}

std::int64_t TokenFile::DocumentOf(std::int64_t token) const {
  assert(token >= 0 && token < size());
  const auto after = std::upper_bound(document_starts_.begin(), document_starts_.end(), token);
  return std::max<std::int64_t>(0, after - document_starts_.begin() - 1);
}

}  // namespace adaptive_train
