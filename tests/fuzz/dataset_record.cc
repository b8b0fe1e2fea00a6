// PREFIX.json of a data set: what was read can be written and read again.
#include "runtime/data/dataset_record.h"

#include "tests/fuzz/fuzz.h"

namespace adaptive_train::fuzz {

void FuzzOne(std::string_view input) {
  const auto record = DatasetRecordFromJson(input);
  if (!record) return Require(!record.error().message.empty());
  const std::string text = ToJson(*record);
  const auto again = DatasetRecordFromJson(text);
  Require(again.has_value() && ToJson(*again) == text);
}

std::vector<std::string> FuzzSeeds() {
  DatasetRecord record;
  record.tokenizer = "bytes";
  record.normalization = "none";
  record.vocab_size = 257;
  record.end_of_document = 256;
  record.token_type = "uint16";
  record.sources = {"a.txt", "b \"quoted\".jsonl"};
  return {ToJson(record), "{\"format_version\": 2}", "[]"};
}

}  // namespace adaptive_train::fuzz
