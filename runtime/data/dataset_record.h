// PREFIX.json: the origin of a built data set.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "core/result.h"

namespace adaptive_train {

/// Written last: if it exists, PREFIX.bin and PREFIX.idx are complete and belong together.
struct DatasetRecord {
  std::string tokenizer;      // "bytes" | "sentencepiece"
  std::string normalization;  // "none" | "nfkc" | "model": that of the given model
  std::int64_t vocab_size = 0;
  std::int32_t end_of_document = 0;
  std::int64_t documents = 0;        // with at least one byte of text
  std::int64_t empty_documents = 0;  // left out
  std::int64_t tokens = 0;           // including the ends of documents
  std::int64_t unknown_tokens = 0;   // text for which the model has no tokens
  std::int64_t text_bytes = 0;       // of documents, before normalisation
  std::string token_type;            // "uint16" | "int32"
  std::vector<std::string> sources;
};

std::string ToJson(const DatasetRecord& record);
/// Errors: not JSON, a newer format_version, or a member that is missing or has another type.
Result<DatasetRecord> DatasetRecordFromJson(std::string_view text);

}  // namespace adaptive_train
