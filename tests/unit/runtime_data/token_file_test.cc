// Several shards behind one name, documents, and where "auto" validation begins.
#include "runtime/data/token_file.h"

#include <gtest/gtest.h>
#include <stdlib.h>

#include <filesystem>
#include <fstream>
#include <numeric>
#include <string>
#include <vector>

#include "runtime/data/token_dataset.h"
#include "tests/unit/runtime_data/numbers.h"

namespace adaptive_train::token_file_test {
namespace {

using Tokens = std::vector<std::int32_t>;
using Places = std::vector<std::int64_t>;

class TokenFileTest : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = testing::TempDir() + "adaptive_train_shards_XXXXXX";
    ASSERT_NE(nullptr, ::mkdtemp(folder_.data()));
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  std::string Write(const std::string& name, const std::string& bytes) const {
    std::ofstream(folder_ + "/" + name, std::ios::binary) << bytes;
    return folder_ + "/" + name;
  }
  /// PREFIX.idx and PREFIX.bin with documents of these sizes; token i of the file is first + i.
  void WriteMegatron(const std::string& prefix, const std::vector<std::int32_t>& sizes,
                     std::uint16_t first) const {
    std::string index = std::string("MMIDIDX\0\0", 9) + Bytes<std::uint64_t>({1}) + "\10" +
                        Bytes<std::uint64_t>({sizes.size(), sizes.size() + 1});
    std::string pointers, marks = Bytes<std::int64_t>({0}), tokens;
    std::int64_t place = 0, mark = 0;
    for (const std::int32_t size : sizes) {
      index += Bytes({size});
      pointers += Bytes({place});
      marks += Bytes({++mark});
      for (std::int32_t i = 0; i < size; ++i) tokens += Bytes<std::uint16_t>({first++});
      place += 2 * size;
    }
    Write(prefix + ".idx", index + pointers + marks);
    Write(prefix + ".bin", tokens);
  }
  Tokens All(const TokenFile& file) const {
    Tokens tokens(static_cast<std::size_t>(file.size()));
    EXPECT_TRUE(file.Read(0, tokens, 1 << 20));
    return tokens;
  }
  std::string ErrorOf(const std::string& path) const {
    const Result<TokenFile> file = TokenFile::Open("data.train", path, TokenFormat::kAuto);
    return file ? "" : file.error().message;
  }

  std::string folder_;
};

TEST_F(TokenFileTest, AStarTakesShardsInTheOrderOfTheirNames) {
  Write("part_2.txt", "cd");
  Write("part_1.txt", "ab");
  Write("part_3.txt", "e");
  Write("other.txt", "xyz");
  const TokenFile file =
      TokenFile::Open("data.train", folder_ + "/part_*.txt", TokenFormat::kAuto).value();
  EXPECT_EQ((Tokens{'a', 'b', 'c', 'd', 'e'}), All(file));
  EXPECT_EQ(3U, file.shards().size());
  EXPECT_EQ("bytes (it has no .idx beside it and no llm.c header): 5 uint8 tokens, 3 shards",
            file.Description());
  for (std::int64_t first = 0; first < 5; ++first) {
    Tokens rest(static_cast<std::size_t>(5 - first));
    ASSERT_TRUE(file.Read(first, rest, 256));
    EXPECT_EQ('a' + first, rest.front());
    EXPECT_EQ('e', rest.back());
  }
  Tokens tokens(5);
  EXPECT_EQ("data.train: " + folder_ +
                "/part_3.txt: byte 0 has the token 101, model.vocab = 101 "
                "allows 0 to 100: set model.vocab to 102 or more",
            file.Read(0, tokens, 101).error().message);
}

TEST_F(TokenFileTest, AFileOfThatVeryNameComesFirst) {
  const std::string star = Write("a*", "star");
  Write("ab", "no");
  EXPECT_EQ(4, TokenFile::Open("data.train", star, TokenFormat::kAuto).value().size());
}

TEST_F(TokenFileTest, MegatronShardsKeepTheirDocuments) {
  WriteMegatron("web_0", {2, 3}, 0);
  WriteMegatron("web_1", {1}, 5);
  Write("web_0.json", "{}");
  Write("web_0.model", "m");
  const TokenFile file =
      TokenFile::Open("data.train", folder_ + "/web_*", TokenFormat::kAuto).value();
  Tokens expected(6);
  std::iota(expected.begin(), expected.end(), 0);
  EXPECT_EQ(expected, All(file));
  EXPECT_EQ((Places{0, 2, 5}), file.document_starts());
  EXPECT_EQ("megatron (it has an .idx beside it): 6 uint16 tokens in 3 documents, 2 shards",
            file.Description());
  Places documents;
  for (std::int64_t token = 0; token < 6; ++token) documents.push_back(file.DocumentOf(token));
  EXPECT_EQ((Places{0, 0, 1, 1, 1, 2}), documents);
}

TEST_F(TokenFileTest, NoShardsAndMixedShardsAreRefused) {
  EXPECT_EQ("data.train: " + folder_ + "/none_*: no file matches", ErrorOf(folder_ + "/none_*"));
  EXPECT_EQ("data.train: /nonexistent/x*: No such file or directory", ErrorOf("/nonexistent/x*"));
  WriteMegatron("mix_0", {2, 3}, 0);
  const std::string text = Write("mix_1.txt", "text");
  EXPECT_EQ(
      "data.train: " + text +
          ": it is bytes (it has no .idx beside it and no llm.c header), but the shards before "
          "it are megatron; all must be alike",
      ErrorOf(folder_ + "/mix_*"));
}

TEST_F(TokenFileTest, WindowsRunAcrossDocumentsAndTellWhereTheyBegin) {
  WriteMegatron("docs", {3, 1, 4, 1, 20}, 0);
  WriteMegatron("other", {9}, 0);
  const Datasets data =
      OpenDatasets({folder_ + "/docs", folder_ + "/other", "auto", 4, 100, 1}).value();
  EXPECT_EQ((Places{3}), data.train.DocumentStartsIn(0));
  EXPECT_EQ((Places{}), data.train.DocumentStartsIn(1));   // 4 begins one: nothing inside
  EXPECT_EQ((Places{1}), data.train.DocumentStartsIn(2));  // 8 begins it, 9 lies inside
  EXPECT_EQ((Places{}), data.train.DocumentStartsIn(3));
  Tokens tokens(4), targets(4);
  ASSERT_TRUE(data.train.Window(2, tokens, targets));
  EXPECT_EQ((Tokens{8, 9, 10, 11}), tokens);
  EXPECT_EQ((Tokens{9, 10, 11, 12}), targets);
}

TEST_F(TokenFileTest, AutoValidationBeginsWithADocument) {
  const auto validation_tokens = [&](const std::vector<std::int32_t>& sizes) {
    WriteMegatron("cut", sizes, 0);
    const Datasets data = OpenDatasets({folder_ + "/cut", "auto", "auto", 4, 5000, 1}).value();
    EXPECT_EQ(std::accumulate(sizes.begin(), sizes.end(), std::int64_t{0}),
              data.train.tokens() + data.validation.tokens());
    return data.validation.tokens();
  };
  EXPECT_EQ(40, validation_tokens({500, 460, 40}));
  EXPECT_EQ(60, validation_tokens({500, 440, 60}));
  EXPECT_EQ(57, validation_tokens({500, 443, 17, 40}));  // 57 is nearer to 50 than 40
  EXPECT_EQ(50, validation_tokens({1000}));              // one document: inside of it
  EXPECT_EQ(50, validation_tokens({500, 500}));          // half of the text is no validation
  EXPECT_EQ(50, validation_tokens({995, 5}));            // nor is next to nothing
}

TEST_F(TokenFileTest, EveryFileBehindARunIsNamed) {
  WriteMegatron("a_0", {9}, 0);
  WriteMegatron("a_1", {9}, 0);
  const std::vector<std::string> train = {folder_ + "/a_0.bin", folder_ + "/a_0.idx",
                                          folder_ + "/a_1.bin", folder_ + "/a_1.idx"};
  const Datasets own =
      OpenDatasets({folder_ + "/a_*", folder_ + "/a_0", "auto", 4, 100, 1}).value();
  std::vector<std::string> all = train;
  all.insert(all.end(), train.begin(), train.begin() + 2);
  EXPECT_EQ(all, FilesOf(own));
  const std::string text = Write("text", std::string(100, 'x'));
  EXPECT_EQ((std::vector<std::string>{text}),
            FilesOf(OpenDatasets({text, "auto", "auto", 4, 256, 1}).value()));
}

TEST_F(TokenFileTest, AOneTokenDocumentIsADocument) {
  WriteMegatron("one", {1, 1, 1, 1, 1, 1}, 0);
  const Datasets data =
      OpenDatasets({folder_ + "/one", folder_ + "/one", "auto", 5, 10, 1}).value();
  EXPECT_EQ(1, data.train.samples());
  EXPECT_EQ((Places{1, 2, 3, 4}), data.train.DocumentStartsIn(0));
}

TEST_F(TokenFileTest, AWrongFormatIsNamedByItsKey) {
  EXPECT_EQ(
      "data.format: there is no format 'csv': allowed are auto, megatron, llmc, uint16 and "
      "bytes",
      OpenDatasets({"x", "auto", "csv", 4, 10, 1}).error().message);
}

}  // namespace
}  // namespace adaptive_train::token_file_test
