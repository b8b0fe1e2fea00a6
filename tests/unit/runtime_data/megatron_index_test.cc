// Megatron's index: its content, the written form, and every kind of invalid index.
#include "runtime/data/megatron_index.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tests/unit/runtime_data/numbers.h"
#include "tests/unit/runtime_data/text_file.h"

namespace adaptive_train::megatron_index_test {
namespace {

Result<MegatronIndex> Read(const std::string& bytes) {
  const TextFile file(bytes);
  return ReadMegatronIndex(RegularFile::Open(file.path()).value());
}

/// The message without the path in front.
std::string ErrorOf(const std::string& bytes) {
  const TextFile file(bytes);
  const Result<MegatronIndex> index = ReadMegatronIndex(RegularFile::Open(file.path()).value());
  if (index) return "";
  EXPECT_TRUE(index.error().message.starts_with(file.path() + ": ")) << index.error().message;
  return index.error().message.substr(file.path().size() + 2);
}

std::string Changed(std::string bytes, std::size_t place, const std::string& by) {
  return bytes.replace(place, by.size(), by);
}

using Starts = std::vector<std::int64_t>;

TEST(MegatronIndex, AFileMadeByHand) {
  // Two documents, the first of two sequences: 3 + 1 and 2 tokens of uint16.
  const std::string bytes(
      "MMIDIDX\0\0"
      "\1\0\0\0\0\0\0\0"
      "\10"
      "\3\0\0\0\0\0\0\0"
      "\3\0\0\0\0\0\0\0"
      "\3\0\0\0\1\0\0\0\2\0\0\0"
      "\0\0\0\0\0\0\0\0\6\0\0\0\0\0\0\0\10\0\0\0\0\0\0\0"
      "\0\0\0\0\0\0\0\0\2\0\0\0\0\0\0\0\3\0\0\0\0\0\0\0",
      34 + 3 * 12 + 3 * 8);
  const MegatronIndex index = Read(bytes).value();
  EXPECT_EQ(TokenType::kUint16, index.type);
  EXPECT_EQ(6, index.tokens);
  EXPECT_EQ((Starts{0, 4}), index.document_starts);
  EXPECT_EQ(bytes, FormatMegatronIndex(TokenType::kUint16, {3, 1, 2}, {0, 2, 3}));
  EXPECT_EQ(bytes, Index(8, 2, {3, 1, 2}, {0, 2, 3}));
}

TEST(MegatronIndex, DocumentsWithoutTokensAreNone) {
  EXPECT_EQ((Starts{0, 3}),
            Read(Index(8, 2, {0, 3, 0, 2, 0}, {0, 1, 2, 3, 4, 5}))->document_starts);
  EXPECT_EQ((Starts{0, 3}), Read(Index(8, 2, {3, 2}, {0, 0, 1, 1, 2, 2}))->document_starts);
  EXPECT_EQ((Starts{}), Read(Index(8, 2, {}, {0}))->document_starts);
  EXPECT_EQ((Starts{}), Read(Index(8, 2, {0}, {0, 1}))->document_starts);
}

TEST(MegatronIndex, WithoutMarksEverySequenceIsADocument) {
  EXPECT_EQ((Starts{0, 3, 4}), Read(Index(8, 2, {3, 1, 2}, {0}))->document_starts);
  EXPECT_EQ((Starts{0, 3, 4}), Read(Index(8, 2, {3, 1, 2}, {}))->document_starts);
}

TEST(MegatronIndex, IndexesLargerThanABlock) {
  std::vector<std::int32_t> sizes;
  std::vector<std::int64_t> marks = {0};
  Starts starts;
  std::int64_t tokens = 0;
  for (int i = 0; i < 10007; ++i) {
    sizes.push_back(1 + i % 5);
    if (i % 3 == 0) starts.push_back(tokens);
    if (i % 3 == 2) marks.push_back(i + 1);
    tokens += sizes.back();
  }
  marks.push_back(10007);
  const MegatronIndex index = Read(FormatMegatronIndex(TokenType::kInt32, sizes, marks)).value();
  EXPECT_EQ(tokens, index.tokens);
  EXPECT_EQ(starts, index.document_starts);
}

TEST(MegatronIndex, WrongHeaders) {
  const std::string good = Index(8, 2, {3, 1}, {0, 2});
  ASSERT_EQ("", ErrorOf(good));
  EXPECT_EQ("no Megatron index: it has 33 bytes, the header alone 34", ErrorOf(good.substr(0, 33)));
  EXPECT_EQ("no Megatron index: it has 0 bytes, the header alone 34", ErrorOf(""));
  EXPECT_EQ("no Megatron index: it does not begin with MMIDIDX", ErrorOf(Changed(good, 0, "TNT")));
  EXPECT_EQ("no Megatron index: it does not begin with MMIDIDX", ErrorOf(Changed(good, 8, "x")));
  EXPECT_EQ("byte 9: version 2 of Megatron's index; this program reads 1",
            ErrorOf(Changed(good, 9, "\2")));
  EXPECT_EQ("byte 17: token type 7 (floating point); allowed are 1 to 5 and 8, the integers",
            ErrorOf(Changed(good, 17, "\7")));
  for (const std::string& code : {std::string(1, '\0'), std::string("\11"), std::string("\377")})
    EXPECT_TRUE(ErrorOf(Changed(good, 17, code)).starts_with("byte 17: token type"));
}

TEST(MegatronIndex, CountsThatDoNotFitTheFile) {
  const std::string good = Index(8, 2, {3, 1}, {0, 2});
  const std::string all_ones(8, '\xff'), half(7, '\0');
  const auto refused = [&](const std::string& bytes) {
    return ErrorOf(bytes).starts_with("byte 18: ");
  };
  EXPECT_EQ(
      "byte 18: 3 sequences and 2 document marks do not fit the 74 bytes of the file, which "
      "would be 34 + 12 for each sequence + 8 for each mark",
      ErrorOf(Changed(good, 18, "\3")));
  EXPECT_TRUE(refused(Changed(good, 18, all_ones)));
  EXPECT_TRUE(refused(Changed(good, 26, all_ones)));
  EXPECT_TRUE(refused(Changed(good, 18, half + "\x10")));
  EXPECT_TRUE(refused(Changed(good, 26, half + "\x20")));  // 8 times this is 0 in 64 bits
  EXPECT_TRUE(refused(good + "x"));
  EXPECT_TRUE(refused(good.substr(0, good.size() - 1)));
  EXPECT_TRUE(refused(good.substr(0, good.size() - 8)));
}

TEST(MegatronIndex, SequencesThatOverlapOrLeaveGaps) {
  const std::string good = Index(8, 2, {3, 1}, {0, 2});
  EXPECT_EQ("byte 38: sequence 1 has -1 tokens", ErrorOf(Changed(good, 38, "\xff\xff\xff\xff")));
  EXPECT_EQ(
      "byte 50: sequence 1 begins at byte 4 of the .bin; the sequences before it end at byte 6",
      ErrorOf(Changed(good, 50, "\4")));
  EXPECT_EQ(
      "byte 50: sequence 1 begins at byte 7 of the .bin; the sequences before it end at byte 6",
      ErrorOf(Changed(good, 50, "\7")));
  EXPECT_EQ(
      "byte 42: sequence 0 begins at byte -1 of the .bin; the sequences before it end at byte 0",
      ErrorOf(Changed(good, 42, std::string(8, '\xff'))));
}

TEST(MegatronIndex, DocumentMarksOutOfOrder) {
  const auto with_marks = [](std::initializer_list<std::int64_t> marks) {
    return ErrorOf(Index(8, 2, {3, 1, 2}, marks));
  };
  EXPECT_EQ("", with_marks({0, 1, 3}));
  EXPECT_EQ(
      "byte 78: document mark 1 is sequence 4; marks begin with 0, never fall and end with 3, "
      "the number of sequences",
      with_marks({0, 4, 3}));
  EXPECT_TRUE(with_marks({1, 2, 3}).starts_with("byte 70: document mark 0 is sequence 1"));
  EXPECT_TRUE(with_marks({0, 2, 1, 3}).starts_with("byte 86: document mark 2 is sequence 1"));
  EXPECT_TRUE(with_marks({0, -1, 3}).starts_with("byte 78: document mark 1 is sequence -1"));
  EXPECT_EQ("byte 78: the last document mark is sequence 2; it must be 3, the number of sequences",
            with_marks({0, 2}));
  EXPECT_TRUE(with_marks({5}).starts_with("byte 70: document mark 0 is sequence 5"));
}

}  // namespace
}  // namespace adaptive_train::megatron_index_test
