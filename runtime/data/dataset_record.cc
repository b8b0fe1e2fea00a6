// A DatasetRecord as JSON.
#include "runtime/data/dataset_record.h"

#include "core/json.h"

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
        json.at("tokenizer").get_to(record.tokenizer);
        json.at("normalization").get_to(record.normalization);
        json.at("vocab_size").get_to(record.vocab_size);
        json.at("end_of_document").get_to(record.end_of_document);
        json.at("documents").get_to(record.documents);
        json.at("empty_documents").get_to(record.empty_documents);
        json.at("tokens").get_to(record.tokens);
        json.at("unknown_tokens").get_to(record.unknown_tokens);
        json.at("text_bytes").get_to(record.text_bytes);
        json.at("token_type").get_to(record.token_type);
        json.at("sources").get_to(record.sources);
        if (record.vocab_size < 1 || record.vocab_size > kMaxVocab || record.tokens < 1 ||
            record.documents < 0 || record.empty_documents < 0 || record.unknown_tokens < 0 ||
            record.text_bytes < 0)
          return Fail(
              "data set: its counts cannot be; vocab_size is 1 to 2^31, there is a token at least");
        return record;
      });
}

}  // namespace adaptive_train
