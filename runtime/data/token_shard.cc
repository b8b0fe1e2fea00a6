// Recognises, opens and reads one file of tokens.
#include "runtime/data/token_shard.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cassert>
#include <filesystem>
#include <limits>
#include <system_error>
#include <utility>

#include "runtime/data/megatron_index.h"

namespace adaptive_train {
namespace {

constexpr std::array<std::pair<TokenFormat, const char*>, 5> kFormats = {{
    {TokenFormat::kAuto, "auto"},
    {TokenFormat::kMegatron, "megatron"},
    {TokenFormat::kLlmc, "llmc"},
    {TokenFormat::kUint16, "uint16"},
    {TokenFormat::kBytes, "bytes"},
}};

constexpr std::int64_t kLlmcHeaderNumbers = 256;
constexpr std::int64_t kLlmcHeaderBytes = 4 * kLlmcHeaderNumbers;

struct LlmcKind {
  std::int32_t magic, version;
  TokenType type;
};
constexpr std::array<LlmcKind, 2> kLlmcKinds = {
    {{20240520, 1, TokenType::kUint16}, {20240801, 7, TokenType::kUint32}}};

const LlmcKind* LlmcKindOf(std::int32_t magic) {
  const auto kind = std::find_if(kLlmcKinds.begin(), kLlmcKinds.end(),
                                 [&](const LlmcKind& known) { return known.magic == magic; });
  return kind == kLlmcKinds.end() ? nullptr : &*kind;
}

bool Exists(const std::string& path) {
  std::error_code error;
  return std::filesystem::exists(path, error);
}

/// PREFIX of PREFIX, PREFIX.bin and PREFIX.idx.
std::string PrefixOf(const std::string& path) {
  return path.ends_with(".bin") || path.ends_with(".idx") ? path.substr(0, path.size() - 4) : path;
}

/// If a file with exactly this name exists, it is the data, whatever lies beside it.
bool LooksLikeMegatron(const std::string& path) {
  const std::string prefix = PrefixOf(path);
  if (prefix == path) return !Exists(path) && Exists(prefix + ".bin") && Exists(prefix + ".idx");
  return Exists(prefix + ".idx");
}

Result<bool> BeginsLikeLlmc(const RegularFile& file) {
  std::int32_t magic = 0;
  if (file.size() < kLlmcHeaderBytes) return false;
  if (Result<void> read = file.ReadAt(0, std::as_writable_bytes(std::span(&magic, 1))); !read)
    return tl::unexpected(read.error());
  return LlmcKindOf(magic) != nullptr;
}

}  // namespace

const char* ToString(TokenFormat format) {
  return std::find_if(kFormats.begin(), kFormats.end(),
                      [&](const auto& known) { return known.first == format; })
      ->second;
}

Result<TokenFormat> ParseTokenFormat(const std::string& word) {
  for (const auto& [format, name] : kFormats) {
    if (word == name) return format;
  }
  return Fail(fmt::format(
      "there is no format '{}': allowed are auto, megatron, llmc, uint16 and bytes", word));
}

TokenShard::TokenShard(RegularFile file, TokenFormat format, std::string reason)
    : file_(std::move(file)), format_(format), reason_(std::move(reason)), paths_({file_.path()}) {}

Result<TokenShard> TokenShard::Open(const std::string& path, TokenFormat format) {
  const std::string named = "named by data.format";
  if (format == TokenFormat::kMegatron) return OpenMegatron(path, named);
  if (format == TokenFormat::kAuto && LooksLikeMegatron(path))
    return OpenMegatron(path, "it has an .idx beside it");
  Result<RegularFile> file = RegularFile::Open(path);
  if (!file) return tl::unexpected(file.error());
  if (file->size() == 0) return Fail(fmt::format("{}: the file is empty", path));
  if (format == TokenFormat::kLlmc) return OpenLlmc(std::move(*file), named);
  if (format != TokenFormat::kAuto) return OpenPlain(std::move(*file), format, named);
  const Result<bool> llmc = BeginsLikeLlmc(*file);
  if (!llmc) return tl::unexpected(llmc.error());
  if (*llmc) return OpenLlmc(std::move(*file), "it begins with llm.c's magic");
  if (path.ends_with(".bin")) {
    return Fail(
        fmt::format("{}: a .bin without an .idx beside it and without llm.c's header: say "
                    "what it is with data.format (uint16 or bytes)",
                    path));
  }
  return OpenPlain(std::move(*file), TokenFormat::kBytes,
                   "it has no .idx beside it and no llm.c header");
}

Result<TokenShard> TokenShard::OpenPlain(RegularFile file, TokenFormat format, std::string reason) {
  TokenShard shard(std::move(file), format, std::move(reason));
  shard.type_ = format == TokenFormat::kUint16 ? TokenType::kUint16 : TokenType::kUint8;
  const std::int64_t width = FactsOf(shard.type_).bytes;
  if (shard.file_.size() % width != 0) {
    return Fail(
        fmt::format("{}: {} bytes are no whole number of uint16 tokens; is data.format "
                    "right?",
                    shard.file_.path(), shard.file_.size()));
  }
  shard.tokens_ = shard.file_.size() / width;
  return shard;
}

Result<TokenShard> TokenShard::OpenLlmc(RegularFile file, std::string reason) {
  TokenShard shard(std::move(file), TokenFormat::kLlmc, std::move(reason));
  const std::string& path = shard.file_.path();
  if (shard.file_.size() < kLlmcHeaderBytes) {
    return Fail(fmt::format("{}: no llm.c shard: it has {} bytes, the header alone {}", path,
                            shard.file_.size(), kLlmcHeaderBytes));
  }
  std::array<std::int32_t, 3> header;
  if (Result<void> read = shard.file_.ReadAt(0, std::as_writable_bytes(std::span(header))); !read)
    return tl::unexpected(read.error());
  const LlmcKind* kind = LlmcKindOf(header[0]);
  if (kind == nullptr) {
    return Fail(
        fmt::format("{}: byte 0: no llm.c shard: magic {}; allowed are 20240520 (uint16 "
                    "tokens) and 20240801 (uint32)",
                    path, header[0]));
  }
  if (header[1] != kind->version) {
    return Fail(fmt::format("{}: byte 4: version {}; with magic {} this program reads {}", path,
                            header[1], header[0], kind->version));
  }
  shard.type_ = kind->type;
  shard.begin_ = kLlmcHeaderBytes;
  shard.tokens_ = header[2];
  const std::int64_t size = kLlmcHeaderBytes + shard.tokens_ * FactsOf(shard.type_).bytes;
  if (shard.tokens_ < 1 || shard.file_.size() != size) {
    return Fail(fmt::format("{}: byte 8: {} {} tokens would be a file of {} bytes; it has {}", path,
                            header[2], FactsOf(shard.type_).name, size, shard.file_.size()));
  }
  return shard;
}

Result<TokenShard> TokenShard::OpenMegatron(const std::string& path, std::string reason) {
  const std::string prefix = PrefixOf(path);
  Result<RegularFile> index_file = RegularFile::Open(prefix + ".idx");
  if (!index_file) return tl::unexpected(index_file.error());
  Result<MegatronIndex> index = ReadMegatronIndex(*index_file);
  if (!index) return tl::unexpected(index.error());
  Result<RegularFile> file = RegularFile::Open(prefix + ".bin");
  if (!file) return tl::unexpected(file.error());
  const std::int64_t expected = index->tokens * FactsOf(index->type).bytes;
  if (file->size() != expected) {
    return Fail(fmt::format("{}: {} bytes, {} than the {} that {} tells of ({} {} tokens){}",
                            file->path(), file->size(), file->size() < expected ? "fewer" : "more",
                            expected, index_file->path(), index->tokens, FactsOf(index->type).name,
                            file->size() < expected ? ": it is cut off or another file's" : ""));
  }
  if (index->tokens == 0)
    return Fail(fmt::format("{}: there are no tokens in it", index_file->path()));
  TokenShard shard(std::move(*file), TokenFormat::kMegatron, std::move(reason));
  shard.paths_.push_back(index_file->path());
  shard.type_ = index->type;
  shard.tokens_ = index->tokens;
  shard.document_starts_ = std::move(index->document_starts);
  return shard;
}

template <class T>
Result<void> TokenShard::ReadAs(std::int64_t first, std::span<std::int32_t> tokens,
                                std::int64_t vocab) const {
  std::array<T, 4096> block;
  std::int64_t place = begin_ + first * static_cast<std::int64_t>(sizeof(T));
  while (!tokens.empty()) {
    const auto piece = std::span(block).first(std::min(block.size(), tokens.size()));
    if (Result<void> read = file_.ReadAt(place, std::as_writable_bytes(piece)); !read) return read;
    for (std::size_t i = 0; i < piece.size(); ++i) {
      const auto token = static_cast<std::int64_t>(piece[i]);
      if (token < 0 || token >= vocab) {
        const std::string hint = token < 0 || token > std::numeric_limits<std::int32_t>::max()
                                     ? ""
                                     : fmt::format(": set model.vocab to {} or more", token + 1);
        return Fail(fmt::format("{}: byte {} has the token {}, model.vocab = {} allows 0 to {}{}",
                                file_.path(), place + static_cast<std::int64_t>(i * sizeof(T)),
                                token, vocab, vocab - 1, hint));
      }
      tokens[i] = static_cast<std::int32_t>(token);
    }
    tokens = tokens.subspan(piece.size());
    place += static_cast<std::int64_t>(piece.size_bytes());
  }
  return {};
}

Result<void> TokenShard::Read(std::int64_t first, std::span<std::int32_t> tokens,
                              std::int64_t vocab) const {
  assert(first >= 0 && static_cast<std::int64_t>(tokens.size()) <= tokens_ - first);
  assert(vocab >= 1 && vocab <= std::int64_t{1} << 31);
  switch (type_) {
    case TokenType::kUint8:
      return ReadAs<std::uint8_t>(first, tokens, vocab);
    case TokenType::kInt8:
      return ReadAs<std::int8_t>(first, tokens, vocab);
    case TokenType::kInt16:
      return ReadAs<std::int16_t>(first, tokens, vocab);
    case TokenType::kInt32:
      return ReadAs<std::int32_t>(first, tokens, vocab);
    case TokenType::kInt64:
      return ReadAs<std::int64_t>(first, tokens, vocab);
    case TokenType::kUint16:
      return ReadAs<std::uint16_t>(first, tokens, vocab);
    case TokenType::kUint32:
      return ReadAs<std::uint32_t>(first, tokens, vocab);
  }
  return {};  // not reached: the switch has every type
}

}  // namespace adaptive_train
