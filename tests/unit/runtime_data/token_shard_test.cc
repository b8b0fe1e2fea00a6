// Each format of tokens is read and detected correctly; errors name file and byte.
#include "runtime/data/token_shard.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tests/unit/runtime_data/numbers.h"
#include "tests/unit/runtime_data/text_file.h"

namespace adaptive_train::token_shard_test {
namespace {

constexpr std::int64_t kAnyVocab = std::int64_t{1} << 31;
using Tokens = std::vector<std::int32_t>;

Tokens All(const TokenShard& shard) {
  Tokens tokens(static_cast<std::size_t>(shard.size()));
  const Result<void> read = shard.Read(0, tokens, kAnyVocab);
  EXPECT_TRUE(read) << read.error().message;
  return tokens;
}

std::string ErrorOf(const std::string& path, TokenFormat format) {
  const Result<TokenShard> shard = TokenShard::Open(path, format);
  return shard ? "" : shard.error().message;
}

std::string LlmcHeader(std::int32_t magic, std::int32_t version, std::int32_t tokens) {
  return Bytes<std::int32_t>({magic, version, tokens}) + std::string(253 * 4, '\0');
}

TEST(TokenShard, Bytes) {
  const TextFile file("ab\xff");
  const TokenShard shard = TokenShard::Open(file.path(), TokenFormat::kAuto).value();
  EXPECT_EQ(TokenFormat::kBytes, shard.format());
  EXPECT_EQ("it has no .idx beside it and no llm.c header", shard.reason());
  EXPECT_EQ((Tokens{97, 98, 255}), All(shard));
  EXPECT_TRUE(shard.document_starts().empty());
}

TEST(TokenShard, RawUint16) {
  const TextFile file(Bytes<std::uint16_t>({0, 258, 65535})), odd("abc");
  EXPECT_EQ((Tokens{0, 258, 65535}),
            All(TokenShard::Open(file.path(), TokenFormat::kUint16).value()));
  EXPECT_EQ(odd.path() + ": 3 bytes are no whole number of uint16 tokens; is data.format right?",
            ErrorOf(odd.path(), TokenFormat::kUint16));
}

TEST(TokenShard, LlmcShardsOfBothWidths) {
  const TextFile narrow(LlmcHeader(20240520, 1, 3) + Bytes<std::uint16_t>({50256, 1, 65535}));
  const TextFile wide(LlmcHeader(20240801, 7, 2) + Bytes<std::uint32_t>({128000, 5}));
  for (const TokenFormat format : {TokenFormat::kAuto, TokenFormat::kLlmc}) {
    const TokenShard shard = TokenShard::Open(narrow.path(), format).value();
    EXPECT_EQ(TokenFormat::kLlmc, shard.format());
    EXPECT_EQ((Tokens{50256, 1, 65535}), All(shard));
    EXPECT_EQ((Tokens{128000, 5}), All(TokenShard::Open(wide.path(), format).value()));
  }
}

TEST(TokenShard, WrongLlmcShards) {
  const std::string two = Bytes<std::uint16_t>({1, 2});
  const auto error_of = [](const std::string& bytes) {
    const TextFile file(bytes);
    const std::string error = ErrorOf(file.path(), TokenFormat::kLlmc);
    return error.substr(std::min(error.size(), file.path().size() + 2));
  };
  EXPECT_EQ("no llm.c shard: it has 4 bytes, the header alone 1024", error_of(two));
  EXPECT_EQ(
      "byte 0: no llm.c shard: magic 7; allowed are 20240520 (uint16 tokens) and 20240801 "
      "(uint32)",
      error_of(LlmcHeader(7, 1, 2) + two));
  EXPECT_EQ("byte 4: version 2; with magic 20240520 this program reads 1",
            error_of(LlmcHeader(20240520, 2, 2) + two));
  EXPECT_EQ("byte 8: 3 uint16 tokens would be a file of 1030 bytes; it has 1028",
            error_of(LlmcHeader(20240520, 1, 3) + two));
  EXPECT_EQ("byte 8: -1 uint16 tokens would be a file of 1022 bytes; it has 1028",
            error_of(LlmcHeader(20240520, 1, -1) + two));
  EXPECT_EQ("byte 8: 0 uint16 tokens would be a file of 1024 bytes; it has 1024",
            error_of(LlmcHeader(20240520, 1, 0)));
}

TEST(TokenShard, MegatronByPrefixBinAndIdx) {
  const MegatronFiles files(Index(8, 2, {2, 1}, {0, 1, 2}), Bytes<std::uint16_t>({7, 300, 9}));
  for (const std::string& path : {files.prefix(), files.token_path(), files.index_path()}) {
    for (const TokenFormat format : {TokenFormat::kAuto, TokenFormat::kMegatron}) {
      const TokenShard shard = TokenShard::Open(path, format).value();
      EXPECT_EQ(TokenFormat::kMegatron, shard.format());
      EXPECT_EQ((Tokens{7, 300, 9}), All(shard));
      EXPECT_EQ((std::vector<std::int64_t>{0, 2}), shard.document_starts());
      EXPECT_EQ((std::vector<std::string>{files.token_path(), files.index_path()}), shard.paths());
    }
  }
}

TEST(TokenShard, MegatronOfEveryIntegerType) {
  const std::pair<std::uint8_t, std::string> types[] = {
      {1, Bytes<std::uint8_t>({1, 100})}, {2, Bytes<std::int8_t>({1, 100})},
      {3, Bytes<std::int16_t>({1, 100})}, {4, Bytes<std::int32_t>({1, 100})},
      {5, Bytes<std::int64_t>({1, 100})}, {8, Bytes<std::uint16_t>({1, 100})}};
  for (const auto& [code, bytes] : types) {
    const MegatronFiles files(Index(code, static_cast<std::int64_t>(bytes.size() / 2), {2}, {0, 1}),
                              bytes);
    EXPECT_EQ((Tokens{1, 100}), All(TokenShard::Open(files.prefix(), TokenFormat::kAuto).value()))
        << int{code};
  }
}

TEST(TokenShard, ABinThatItsIndexDoesNotDescribe) {
  const std::string index = Index(8, 2, {2, 1}, {0, 1, 2});
  const MegatronFiles cut(index, "abcd"), longer(index, "abcdefgh"), none(Index(8, 2, {}, {0}), "");
  EXPECT_EQ(cut.token_path() + ": 4 bytes, fewer than the 6 that " + cut.index_path() +
                " tells of (3 uint16 tokens): it is cut off or another file's",
            ErrorOf(cut.prefix(), TokenFormat::kAuto));
  EXPECT_EQ(longer.token_path() + ": 8 bytes, more than the 6 that " + longer.index_path() +
                " tells of (3 uint16 tokens)",
            ErrorOf(longer.prefix(), TokenFormat::kAuto));
  EXPECT_EQ(none.index_path() + ": there are no tokens in it",
            ErrorOf(none.prefix(), TokenFormat::kAuto));
  std::filesystem::remove(cut.token_path());
  EXPECT_EQ(cut.token_path() + ": cannot be opened: No such file or directory",
            ErrorOf(cut.index_path(), TokenFormat::kAuto));
}

TEST(TokenShard, ALoneBinIsNotGuessedAt) {
  const MegatronFiles files("", "abcd");
  std::filesystem::remove(files.index_path());
  EXPECT_EQ(files.token_path() +
                ": a .bin without an .idx beside it and without llm.c's header: say what it is "
                "with data.format (uint16 or bytes)",
            ErrorOf(files.token_path(), TokenFormat::kAuto));
  EXPECT_EQ("", ErrorOf(files.token_path(), TokenFormat::kUint16));
  EXPECT_EQ(files.index_path() + ": cannot be opened: No such file or directory",
            ErrorOf(files.token_path(), TokenFormat::kMegatron));
}

TEST(TokenShard, TokensPastTheVocabularyAreNamedWithFileAndByte) {
  const MegatronFiles files(Index(4, 4, {3}, {0, 1}), Bytes<std::int32_t>({5, -2, 300}));
  const TextFile llmc(LlmcHeader(20240801, 7, 2) + Bytes<std::uint32_t>({5, 4000000000U}));
  const TokenShard megatron = TokenShard::Open(files.prefix(), TokenFormat::kAuto).value();
  Tokens one(1), two(2);
  EXPECT_TRUE(megatron.Read(0, one, 6));
  EXPECT_EQ(files.token_path() +
                ": byte 0 has the token 5, model.vocab = 5 allows 0 to 4: set "
                "model.vocab to 6 or more",
            megatron.Read(0, one, 5).error().message);
  EXPECT_EQ(files.token_path() + ": byte 4 has the token -2, model.vocab = 1000 allows 0 to 999",
            megatron.Read(0, two, 1000).error().message);
  EXPECT_EQ(files.token_path() +
                ": byte 8 has the token 300, model.vocab = 300 allows 0 to 299: set "
                "model.vocab to 301 or more",
            megatron.Read(2, one, 300).error().message);
  const TokenShard shard = TokenShard::Open(llmc.path(), TokenFormat::kAuto).value();
  EXPECT_EQ(llmc.path() +
                ": byte 1028 has the token 4000000000, model.vocab = 2147483648 allows 0 to "
                "2147483647",
            shard.Read(0, two, kAnyVocab).error().message);
}

TEST(TokenShard, FormatsByName) {
  for (const char* name : {"auto", "megatron", "llmc", "uint16", "bytes"})
    EXPECT_STREQ(name, ToString(ParseTokenFormat(name).value()));
  EXPECT_EQ("there is no format 'arrow': allowed are auto, megatron, llmc, uint16 and bytes",
            ParseTokenFormat("arrow").error().message);
}

}  // namespace
}  // namespace adaptive_train::token_shard_test
