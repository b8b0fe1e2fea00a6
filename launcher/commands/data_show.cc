// Shows a data set, for people and as JSON.
#include "launcher/commands/data_show.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <system_error>
#include <vector>

#include "core/file_io.h"
#include "core/format_version.h"
#include "launcher/commands/outcome.h"
#include "runtime/data/dataset_record.h"
#include "runtime/data/token_file.h"
#include "runtime/data/tokenizer.h"

namespace adaptive_train {
namespace {

constexpr std::size_t kMostRecordBytes = std::size_t{64} << 20;
constexpr std::size_t kMostModelBytes = std::size_t{256} << 20;
constexpr std::size_t kMostShownBytes = 2000;
constexpr std::int64_t kAnyVocab = std::int64_t{1} << 31;

bool PathExists(const std::string& path) {
  std::error_code error;
  return std::filesystem::exists(path, error);
}

/// A data set, its builder's record of it, and its vocabulary if there is one.
struct Shown {
  TokenFile file;
  std::optional<DatasetRecord> record;
  std::unique_ptr<Tokenizer> tokenizer;
  std::vector<std::int32_t> first_tokens;
};

Result<std::optional<DatasetRecord>> ReadRecord(const std::string& path) {
  if (!PathExists(path)) return std::nullopt;
  const Result<std::string> text = ReadFile(path, kMostRecordBytes);
  if (!text) return tl::unexpected(text.error());
  Result<DatasetRecord> record = DatasetRecordFromJson(*text);
  if (!record) return FailIn(path, record.error());
  return std::move(*record);
}

/// Only Megatron's data sets have a prefix that names several files and may have a builder's
/// record.
std::string PrefixOf(const TokenFile& file) {
  const TokenShard& shard = file.shards().front();
  if (file.shards().size() > 1 || shard.format() != TokenFormat::kMegatron) return "";
  return std::filesystem::path(shard.paths().front()).replace_extension().string();
}

Result<std::unique_ptr<Tokenizer>> FindTokenizer(const TokenFile& file, const std::string& prefix,
                                                 const std::optional<DatasetRecord>& record) {
  const bool bytes = file.shards().front().format() == TokenFormat::kBytes;
  if (bytes || (record && record->tokenizer == "bytes")) return MakeByteTokenizer();
  const std::string path = prefix + ".model";
  if (prefix.empty() || !PathExists(path) || !HasSentencePiece()) return nullptr;
  const Result<std::string> model = ReadFile(path, kMostModelBytes);
  if (!model) return tl::unexpected(model.error());
  return MakeSentencePieceTokenizer(*model, path);
}

Result<Shown> Look(const DataShowRequest& request) {
  const Result<TokenFormat> format = ParseTokenFormat(request.format);
  if (!format) return FailIn("--format", format.error());
  Result<TokenFile> file = TokenFile::Open("data show", request.path, *format);
  if (!file) return tl::unexpected(file.error());
  Shown shown{std::move(*file), {}, {}, {}};
  const std::string prefix = PrefixOf(shown.file);
  if (!prefix.empty()) {
    Result<std::optional<DatasetRecord>> record = ReadRecord(prefix + ".json");
    if (!record) return tl::unexpected(record.error());
    shown.record = std::move(*record);
  }
  Result<std::unique_ptr<Tokenizer>> tokenizer = FindTokenizer(shown.file, prefix, shown.record);
  if (!tokenizer) return tl::unexpected(tokenizer.error());
  shown.tokenizer = std::move(*tokenizer);
  shown.first_tokens.resize(
      static_cast<std::size_t>(std::min(request.first_tokens, shown.file.size())));
  const std::int64_t vocab = shown.record ? shown.record->vocab_size : kAnyVocab;
  if (Result<void> read = shown.file.Read(0, shown.first_tokens, vocab); !read)
    return tl::unexpected(read.error());
  return shown;
}

void PrintJson(const Shown& shown, const std::string& path) {
  const TokenShard& shard = shown.file.shards().front();
  const std::vector<std::int64_t>& documents = shown.file.document_starts();
  nlohmann::ordered_json json = {{"format_version", kFormatVersion},
                                 {"path", path},
                                 {"format", ToString(shard.format())},
                                 {"reason", shard.reason()},
                                 {"token_type", FactsOf(shard.type()).name},
                                 {"shards", shown.file.shards().size()},
                                 {"tokens", shown.file.size()},
                                 {"documents", nullptr},
                                 {"vocab_size", nullptr},
                                 {"end_of_document", nullptr},
                                 {"tokenizer", nullptr},
                                 {"normalization", nullptr},
                                 {"first_tokens", shown.first_tokens},
                                 {"first_text", nullptr}};
  if (!documents.empty()) json["documents"] = documents.size();
  if (shown.record) {
    json["vocab_size"] = shown.record->vocab_size;
    json["end_of_document"] = shown.record->end_of_document;
    json["tokenizer"] = shown.record->tokenizer;
    json["normalization"] = shown.record->normalization;
  }
  if (shown.tokenizer) json["first_text"] = shown.tokenizer->Decode(shown.first_tokens);
  // Tokens may end in the middle of a character, and a path need not be UTF-8.
  fmt::print("{}\n", json.dump(2, ' ', false, nlohmann::json::error_handler_t::replace));
}

void PrintLines(const Shown& shown) {
  fmt::print("format      {}\n", shown.file.Description());
  if (shown.record) {
    const DatasetRecord& record = *shown.record;
    fmt::print("vocabulary  {} tokens, {}, normalization {}; {} ends a document\n",
               record.vocab_size, record.tokenizer, record.normalization, record.end_of_document);
    fmt::print("made of     {} bytes of text, {:.2f} bytes a token; {} empty documents left out\n",
               record.text_bytes,
               static_cast<double>(record.text_bytes) / static_cast<double>(record.tokens),
               record.empty_documents);
  }
  fmt::print("tokens      {}\n", fmt::join(shown.first_tokens, " "));
  if (shown.tokenizer)
    fmt::print("text        {}\n",
               Printable(shown.tokenizer->Decode(shown.first_tokens), kMostShownBytes));
}

}  // namespace

int RunDataShow(const DataShowRequest& request) {
  const Result<Shown> shown = Look(request);
  if (!shown) return ReportError("data", shown.error());
  if (request.json) {
    PrintJson(*shown, request.path);
  } else {
    PrintLines(*shown);
  }
  return ToInt(ExitCode::kDone);
}

}  // namespace adaptive_train
