// llm.c's header, raw tokens, and the recognition of formats: every token that is counted is read.
#include "runtime/data/token_shard.h"

#include <algorithm>
#include <cstring>

#include "tests/fuzz/fuzz.h"

namespace adaptive_train::fuzz {

void FuzzOne(std::string_view input) {
  const MemoryFile file(input);
  for (const TokenFormat format :
       {TokenFormat::kAuto, TokenFormat::kLlmc, TokenFormat::kUint16, TokenFormat::kBytes}) {
    const auto shard = TokenShard::Open(file.path(), format);
    if (!shard) {
      Require(!shard.error().message.empty());
      continue;
    }
    std::vector<std::int32_t> tokens(static_cast<std::size_t>(shard->size()));
    Require(!tokens.empty());
    const auto all = shard->Read(0, tokens, 1000);
    const auto inside = [](std::int32_t token) { return token >= 0 && token < 1000; };
    Require(!all || std::all_of(tokens.begin(), tokens.end(), inside));
  }
}

std::vector<std::string> FuzzSeeds() {
  const auto llmc = [](std::int32_t magic, std::int32_t version, std::int32_t count,
                       std::size_t width) {
    std::string bytes(1024 + static_cast<std::size_t>(count) * width, '\0');
    const std::int32_t header[] = {magic, version, count};
    std::memcpy(bytes.data(), header, sizeof header);
    return bytes;
  };
  return {llmc(20240520, 1, 5, 2), llmc(20240801, 7, 3, 4), "plain bytes", std::string(64, '\1')};
}

}  // namespace adaptive_train::fuzz
