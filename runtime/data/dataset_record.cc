// A DatasetRecord as JSON.
#include "runtime/data/dataset_record.h"

#include <limits>

#include "core/json_reader.h"

namespace adaptive_train {

namespace {

/// Tokens are int32.
constexpr std::int64_t kMaxVocab = std::int64_t{1} << 31;

}  // namespace

std::string ToJson(const DatasetRecord& record) {
  const nlohmann::ordered_json json = {
      {"format_version", kFormatVersion}, {"adaptive_train_version", ADAPTIVE_TRAIN_VERSION},
      {"tokenizer", record.tokenizer},    {"normalization", record.normalization},
      {"vocab_size", record.vocab_size},  {"end_of_document", record.end_of_document},
      {"documents", record.documents},    {"empty_documents", record.empty_documents},
      {"tokens", record.tokens},          {"unknown_tokens", record.unknown_tokens},
      {"text_bytes", record.text_bytes},  {"token_type", record.token_type},
      {"sources", record.sources}};
  // A file's name need not be UTF-8.
  return json.dump(2, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
}

Result<DatasetRecord> DatasetRecordFromJson(std::string_view text) {
  return ReadJson<DatasetRecord>(
      text, "data set", [](const nlohmann::json& json) -> Result<DatasetRecord> {
        DatasetRecord record;
        constexpr std::int64_t kMost = std::numeric_limits<std::int64_t>::max();
        std::string error;
        const JsonReader reader(json, "", error);
        reader.Read("tokenizer", record.tokenizer);
        reader.Read("normalization", record.normalization);
        reader.Read("vocab_size", record.vocab_size, 1, kMaxVocab);
        reader.Read("end_of_document", record.end_of_document, 0, kMaxVocab - 1);
        reader.Read("documents", record.documents, 0, kMost);
        reader.Read("empty_documents", record.empty_documents, 0, kMost);
        reader.Read("tokens", record.tokens, 1, kMost);
        reader.Read("unknown_tokens", record.unknown_tokens, 0, kMost);
        reader.Read("text_bytes", record.text_bytes, 0, kMost);
        reader.Read("token_type", record.token_type);
        reader.ReadAnyTexts("sources", record.sources);
        if (!error.empty()) return Fail("data set: " + error);
        return record;
      });
}

}  // namespace adaptive_train
