// Megatron's .idx: whatever is accepted describes documents that lie inside of its tokens.
#include "runtime/data/megatron_index.h"

#include "tests/fuzz/fuzz.h"

namespace adaptive_train::fuzz {

void FuzzOne(std::string_view input) {
  const MemoryFile file(input);
  const auto index = ReadMegatronIndex(RegularFile::Open(file.path()).value());
  if (!index) return Require(!index.error().message.empty());
  Require(index->tokens >= 0 && index->tokens <= kMostTokens);
  std::int64_t last = -1;
  for (const std::int64_t start : index->document_starts) {
    Require(start > last && start < index->tokens);
    last = start;
  }
  Require(index->document_starts.empty() == (index->tokens == 0));
}

std::vector<std::string> FuzzSeeds() {
  return {FormatMegatronIndex(TokenType::kUint16, {3, 1, 2}, {0, 2, 3}),
          FormatMegatronIndex(TokenType::kInt32, {1, 1, 0, 1, 5}, {0, 1, 2, 3, 4, 5}),
          FormatMegatronIndex(TokenType::kInt64, {7}, {0, 0, 1, 1}),
          FormatMegatronIndex(TokenType::kUint8, {}, {0})};
}

}  // namespace adaptive_train::fuzz
