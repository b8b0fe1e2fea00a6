// Text to tokens on disk and back.
#include "runtime/data/dataset_build.h"

#include <gtest/gtest.h>
#include <stdlib.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "runtime/data/token_file.h"
#include "runtime/data/tokenizer.h"
#include "tests/unit/odd_documents.h"

namespace adaptive_train::dataset_build_test {
namespace {

class DatasetBuildTest : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = testing::TempDir() + "adaptive_train_build_XXXXXX";
    ASSERT_NE(nullptr, ::mkdtemp(folder_.data()));
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  std::string Write(const std::string& name, const std::string& bytes) const {
    std::ofstream(folder_ + "/" + name, std::ios::binary) << bytes;
    return folder_ + "/" + name;
  }
  std::string Contents(const std::string& name) const {
    std::ifstream file(folder_ + "/" + name, std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
  }
  std::vector<std::string> Names() const {
    std::vector<std::string> names;
    for (const auto& entry : std::filesystem::directory_iterator(folder_))
      names.push_back(entry.path().filename().string());
    std::sort(names.begin(), names.end());
    return names;
  }
  BuildRequest Request(std::vector<std::string> inputs, const std::string& tokenizer) const {
    BuildRequest request;
    request.inputs = std::move(inputs);
    request.output = folder_ + "/set";
    request.tokenizer = tokenizer;
    return request;
  }
  std::string ErrorOf(const BuildRequest& request) const {
    const Result<DatasetRecord> record = BuildDataset(request, {});
    return record ? "" : record.error().message;
  }
  /// The text of document `number` of the data set.
  std::string Document(const Tokenizer& tokenizer, std::size_t number) const {
    const TokenFile file = TokenFile::Open("set", folder_ + "/set", TokenFormat::kMegatron).value();
    const std::vector<std::int64_t>& starts = file.document_starts();
    const std::int64_t begin = starts.at(number),
                       end = number + 1 < starts.size() ? starts[number + 1] : file.size();
    std::vector<std::int32_t> tokens(static_cast<std::size_t>(end - begin));
    EXPECT_TRUE(file.Read(begin, tokens, tokenizer.vocab()));
    EXPECT_EQ(tokenizer.end_of_document(), tokens.back());
    tokens.pop_back();
    return tokenizer.Decode(tokens);
  }

  std::string folder_;
};

/// Sentences enough for a small vocabulary.
std::string Prose(int sentences) {
  const char* words[] = {"the", "node", "link", "rank", "waits", "sends", "gradient", "stage",
                         "of",  "a",    "slow", "fast", "and",   "again", "step",     "holds"};
  std::string text;
  unsigned state = 1;
  for (int i = 0; i < sentences; ++i) {
    for (int word = 0; word < 9; ++word) {
      state = state * 1664525U + 1013904223U;
      text += words[state >> 28];
      if ((state >> 20 & 7) == 0) text += "s";
      text += word == 8 ? ".\n" : " ";
    }
  }
  return text;
}

TEST_F(DatasetBuildTest, BytesAndTheEndsOfDocuments) {
  const std::string a = Write("a.txt", "hi"),
                    b = Write("b.jsonl", "{\"text\":\"\"}\n{\"text\":\"\xc3\xa9\"}");
  const DatasetRecord record = BuildDataset(Request({a, b}, "bytes"), {}).value();
  EXPECT_EQ(257, record.vocab_size);
  EXPECT_EQ(256, record.end_of_document);
  EXPECT_EQ(2, record.documents);
  EXPECT_EQ(1, record.empty_documents);
  EXPECT_EQ(6, record.tokens);
  EXPECT_EQ(4, record.text_bytes);
  EXPECT_EQ(std::string("h\0i\0\0\1\xc3\0\xa9\0\0\1", 12), Contents("set.bin"));
  EXPECT_EQ(std::string("MMIDIDX\0\0\1\0\0\0\0\0\0\0\10\2\0\0\0\0\0\0\0\3\0\0\0\0\0\0\0"
                        "\3\0\0\0\3\0\0\0"
                        "\0\0\0\0\0\0\0\0\6\0\0\0\0\0\0\0"
                        "\0\0\0\0\0\0\0\0\1\0\0\0\0\0\0\0\2\0\0\0\0\0\0\0",
                        34 + 2 * 12 + 3 * 8),
            Contents("set.idx"));
  EXPECT_EQ((std::vector<std::string>{"a.txt", "b.jsonl", "set.bin", "set.idx", "set.json"}),
            Names());
  const DatasetRecord read = DatasetRecordFromJson(Contents("set.json")).value();
  EXPECT_EQ(ToJson(record), ToJson(read));
  EXPECT_EQ((std::vector<std::string>{a, b}), read.sources);
}

TEST_F(DatasetBuildTest, SentencepieceKeepsTheTextAndTheSameTextGivesTheSameFiles) {
  const std::string prose = Prose(2000);
  const std::string odd =
      "  two  spaces\n\n\ttab \xe6\x97\xa5\xe6\x9c\xac </s> \xe2\x96\x85 end \r\n";
  const std::string input = Write("a.txt", prose), other = Write("b.txt", odd);
  for (const char* kind : {"unigram", "bpe"}) {
    BuildRequest request = Request({input, other}, "sentencepiece");
    request.vocab_size = 340;
    request.kind = kind;
    request.overwrite = true;
    const DatasetRecord record = BuildDataset(request, {}).value();
    EXPECT_EQ(340, record.vocab_size);
    EXPECT_EQ(0, record.unknown_tokens);
    EXPECT_EQ("nfkc", record.normalization);
    EXPECT_LT(record.tokens * 2, record.text_bytes) << kind;
    const auto tokenizer = MakeSentencePieceTokenizer(Contents("set.model"), "set.model").value();
    EXPECT_TRUE(prose == Document(*tokenizer, 0)) << kind;
    EXPECT_EQ(odd, Document(*tokenizer, 1)) << kind;
    const std::string first = Contents("set.bin"), model = Contents("set.model");
    ASSERT_TRUE(BuildDataset(request, {}));
    EXPECT_TRUE(model == Contents("set.model")) << kind;
    EXPECT_TRUE(first == Contents("set.bin")) << kind;
  }
}

TEST_F(DatasetBuildTest, NfkcIsTheModelsOwn) {
  const std::string input = Write("a.txt", Prose(2000) + "\xef\xac\x81ne \xc2\xbd\n");
  BuildRequest request = Request({input}, "sentencepiece");
  request.vocab_size = 340;
  ASSERT_EQ("", ErrorOf(request));
  auto tokenizer = MakeSentencePieceTokenizer(Contents("set.model"), "set.model").value();
  EXPECT_TRUE(Document(*tokenizer, 0)
                  .ends_with("fine 1\xe2\x81\x84"
                             "2\n"));
  request.normalization = "none";
  request.overwrite = true;
  ASSERT_EQ("", ErrorOf(request));
  tokenizer = MakeSentencePieceTokenizer(Contents("set.model"), "set.model").value();
  EXPECT_TRUE(Document(*tokenizer, 0).ends_with("\xef\xac\x81ne \xc2\xbd\n"));
}

TEST_F(DatasetBuildTest, AGivenModelIsUsedAsItIs) {
  BuildRequest first = Request({Write("a.txt", Prose(2000))}, "sentencepiece");
  first.vocab_size = 340;
  ASSERT_EQ("", ErrorOf(first));
  std::filesystem::rename(folder_ + "/set.model", folder_ + "/given.model");
  BuildRequest second = Request({Write("b.txt", Prose(3))}, "sentencepiece");
  second.model = folder_ + "/given.model";
  second.overwrite = true;
  const DatasetRecord record = BuildDataset(second, {}).value();
  EXPECT_EQ(340, record.vocab_size);
  EXPECT_EQ("model", record.normalization);
  EXPECT_TRUE(Contents("given.model") == Contents("set.model"));
  second.model = Write("wrong.model", "not a model");
  EXPECT_TRUE(ErrorOf(second).starts_with(second.model + ": not a sentencepiece model"))
      << ErrorOf(second);
}

TEST_F(DatasetBuildTest, AVocabularyThatTheTextCannotFillNamesWhatIsAllowed) {
  BuildRequest request = Request({Write("a.txt", Prose(100))}, "sentencepiece");
  const std::string large = ErrorOf(request);
  EXPECT_TRUE(
      large.starts_with("the text is too small for a vocabulary of 32000 tokens: allowed are "))
      << large;
  request.vocab_size = 100;
  const std::string small = ErrorOf(request);
  EXPECT_TRUE(
      small.starts_with("a vocabulary of 100 tokens is too small for the text's characters"))
      << small;
  const auto number_in = [](const std::string& text) {
    return std::stoll(text.substr(text.find("allowed are ") + 12));
  };
  request.vocab_size = number_in(small);
  EXPECT_EQ("", ErrorOf(request));
  request.overwrite = true;
  request.vocab_size = number_in(large);
  EXPECT_EQ("", ErrorOf(request));
  request.inputs = {Write("marks.txt", "\xe2\x96\x85\n\n\xe2\x96\x85")};
  EXPECT_EQ("the text has no line to learn a vocabulary from", ErrorOf(request));
}

TEST_F(DatasetBuildTest, ASampleOfTheTextIsTrainedOn) {
  BuildRequest request = Request({Write("a.txt", Prose(20000))}, "sentencepiece");
  request.vocab_size = 340;
  request.sample_bytes = 100000;
  const DatasetRecord record = BuildDataset(request, {}).value();
  EXPECT_EQ(340, record.vocab_size);
  request.sample_bytes = 10;
  request.overwrite = true;
  EXPECT_TRUE(ErrorOf(request).find("allowed are") != std::string::npos ||
              ErrorOf(request).find("no line") != std::string::npos)
      << ErrorOf(request);
}

TEST_F(DatasetBuildTest, WhatFailsLeavesNothingBehindAndTheOldSetStays) {
  const std::string good = Write("a.txt", "some text"),
                    bad = Write("b.jsonl", "{\"text\":\"x\"}\n{");
  ASSERT_EQ("", ErrorOf(Request({good}, "bytes")));
  const std::string before = Contents("set.bin");
  const std::vector<std::string> names = Names();
  BuildRequest request = Request({good, bad}, "bytes");
  EXPECT_EQ(folder_ + "/set.bin: it exists; choose another --output, or give --overwrite",
            ErrorOf(request));
  request.overwrite = true;
  EXPECT_EQ(bad + ": line 2: it is not JSON from column 2 on", ErrorOf(request));
  EXPECT_EQ(names, Names());
  EXPECT_EQ(before, Contents("set.bin"));
  request.inputs = {Write("empty.txt", "")};
  EXPECT_EQ("the inputs have no text: there is nothing to write", ErrorOf(request));
  request.inputs = {folder_ + "/set.bin"};
  EXPECT_EQ(folder_ + "/set.bin: it is an input; choose another --output", ErrorOf(request));
  request.inputs = {good};
  request.output = folder_ + "/a.txt/set";
  EXPECT_EQ(folder_ + "/a.txt: Not a directory", ErrorOf(request));
  request.output = folder_ + "/missing/set";
  EXPECT_EQ("", ErrorOf(request));
}

TEST_F(DatasetBuildTest, StoppingLeavesNothingBehind) {
  const std::string input = Write("a.txt", Prose(100000));
  const std::vector<std::string> names = Names();
  BuildEvents events;
  bool writing = false;
  events.before_writing = [&] { writing = true; };
  events.stop_asked = [&] { return writing; };
  const Result<DatasetRecord> record = BuildDataset(Request({input}, "bytes"), events);
  ASSERT_FALSE(record);
  EXPECT_EQ(ExitCode::kInterrupted, record.error().exit_code);
  EXPECT_EQ(names, Names());
}

TEST_F(DatasetBuildTest, ProgressRisesToTheEnd) {
  const std::string input = Write("a.txt", Prose(100000));
  std::int64_t last = 0, calls = 0;
  BuildEvents events;
  events.on_progress = [&](const BuildProgress& progress) {
    EXPECT_GT(progress.bytes, last);
    EXPECT_LE(progress.bytes, progress.total_bytes);
    EXPECT_GT(progress.tokens, 0);
    last = progress.bytes;
    ++calls;
  };
  ASSERT_TRUE(BuildDataset(Request({input}, "bytes"), events));
  EXPECT_GE(calls, 3);
}

TEST(DatasetRecord, ANewerOrForeignRecordIsRefused) {
  EXPECT_FALSE(DatasetRecordFromJson("{}"));
  EXPECT_FALSE(DatasetRecordFromJson("[]"));
  EXPECT_FALSE(DatasetRecordFromJson("{\"format_version\": 99}"));
  EXPECT_FALSE(DatasetRecordFromJson("{\"format_version\": 1, \"tokenizer\": 7}"));
}

TEST(Tokenizer, BytesThereAndBack) {
  const auto tokenizer = MakeByteTokenizer();
  std::vector<std::int32_t> tokens;
  ASSERT_TRUE(tokenizer->Encode("a\xff", tokens));
  EXPECT_EQ((std::vector<std::int32_t>{97, 255}), tokens);
  tokens.push_back(256);
  EXPECT_EQ("a\xff<256>", tokenizer->Decode(tokens));
}

TEST(DatasetRecordJson, OddRecordsAreRefusedInOneLine) {
  DatasetRecord record{"bytes", "none", 257, 256, 3, 0, 1000, 0, 990, "uint16", {"/a.txt"}};
  ExpectOddDocumentsRefused(ToJson(record), DatasetRecordFromJson);
}

TEST(DatasetRecordJson, AMemberOfAnotherTypeIsNamed) {
  const auto read = DatasetRecordFromJson(R"({"format_version": 1, "tokenizer": 5})");
  ASSERT_FALSE(read);
  EXPECT_EQ(read.error().message,
            "data set: tokenizer: not a string of at most 1024 bytes without control characters");
}

}  // namespace
}  // namespace adaptive_train::dataset_build_test
