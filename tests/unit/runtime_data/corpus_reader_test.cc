// Documents from text and from JSON lines, and invalid inputs.
#include "runtime/data/corpus_reader.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "runtime/data/utf8.h"
#include "tests/unit/runtime_data/text_file.h"

namespace adaptive_train::corpus_reader_test {
namespace {

/// A TextFile whose name ends in .jsonl.
class JsonLines {
 public:
  explicit JsonLines(const std::string& text) : file_(text), path_(file_.path() + ".jsonl") {
    std::filesystem::copy_file(file_.path(), path_);
  }
  ~JsonLines() { std::filesystem::remove(path_); }
  const std::string& path() const { return path_; }

 private:
  TextFile file_;
  std::string path_;
};

struct Read {
  std::vector<std::string> documents;
  std::size_t pieces = 0;
  std::string error;
};

Read ReadAll(const std::string& path, const CorpusOptions& options = {}) {
  Read read;
  auto reader = OpenCorpus(path, options);
  if (!reader) return {{}, 0, reader.error().message};
  CorpusPiece piece;
  for (bool open = false;;) {
    const Result<bool> more = (*reader)->Next(piece);
    if (!more) {
      read.error = more.error().message;
      EXPECT_TRUE(read.error.starts_with(path + ": ")) << read.error;
      read.error = read.error.substr(std::min(read.error.size(), path.size() + 2));
      return read;
    }
    if (!*more) break;
    EXPECT_EQ(piece.text.size(), ValidUtf8Bytes(piece.text));
    EXPECT_LE(piece.text.size(), std::size_t{1} << 20);
    if (!open) read.documents.emplace_back();
    read.documents.back() += piece.text;
    open = !piece.ends_document;
    ++read.pieces;
  }
  EXPECT_EQ((*reader)->size(), (*reader)->bytes_read());
  return read;
}

std::string ErrorOf(const std::string& lines) { return ReadAll(JsonLines(lines).path()).error; }

using Documents = std::vector<std::string>;

TEST(CorpusReader, ATextIsOneDocument) {
  EXPECT_EQ((Documents{"one\n\ntwo\r\n"}), ReadAll(TextFile("one\n\ntwo\r\n").path()).documents);
  EXPECT_EQ((Documents{""}), ReadAll(TextFile("").path()).documents);
  EXPECT_EQ((Documents{"x"}), ReadAll(TextFile("\xef\xbb\xbfx").path()).documents);
}

TEST(CorpusReader, LongTextsComeInPiecesThatLoseNothing) {
  std::string lines, words, characters;
  while (lines.size() < 3500000)
    lines += "a line of text, number " + std::to_string(lines.size()) + "\n";
  while (words.size() < 3500000) words += "word" + std::to_string(words.size()) + " ";
  while (characters.size() < 3500000) characters += "\xe2\x82\xac";
  for (const std::string& text : {lines, words, characters, std::string(1 << 20, 'x')}) {
    const Read read = ReadAll(TextFile(text).path());
    ASSERT_EQ("", read.error);
    ASSERT_EQ(1U, read.documents.size());
    EXPECT_TRUE(text == read.documents[0]);
    EXPECT_EQ(text.size() > 2000000 ? 4U : 1U, read.pieces);
  }
}

TEST(CorpusReader, ALineOfJsonIsADocument) {
  const JsonLines file(
      "{\"text\": \"one\\n\\u00e9\", \"id\": 7}\n"
      "\n"
      "   \t\r\n"
      "{\"id\": {\"text\": 1}, \"text\": \"\"}\r\n"
      "{\"text\": \"last without a line feed\"}");
  EXPECT_EQ((Documents{"one\n\xc3\xa9", "", "last without a line feed"}),
            ReadAll(file.path()).documents);
  EXPECT_TRUE(ReadAll(JsonLines("").path()).documents.empty());
  EXPECT_TRUE(ReadAll(JsonLines("\n\n").path()).documents.empty());
  EXPECT_EQ(
      (Documents{"b"}),
      ReadAll(JsonLines("{\"text\": \"a\", \"body\": \"b\"}").path(), {"body", {}}).documents);
}

TEST(CorpusReader, ALineOfTenMegabytesIsADocument) {
  std::string text;
  while (text.size() < 10000000) text += "0123456789 ";
  const JsonLines file("{\"text\": \"" + text + "\"}\n{\"text\": \"next\"}\n");
  const Read read = ReadAll(file.path());
  ASSERT_EQ("", read.error);
  ASSERT_EQ(2U, read.documents.size());
  EXPECT_TRUE(text == read.documents[0]);
  EXPECT_EQ("next", read.documents[1]);
}

TEST(CorpusReader, ManyShortLines) {
  std::string lines;
  for (int i = 0; i < 100000; ++i) lines += "{\"text\": \"" + std::to_string(i) + "\"}\n";
  const Read read = ReadAll(JsonLines(lines).path());
  ASSERT_EQ(100000U, read.documents.size());
  EXPECT_EQ("99999", read.documents.back());
}

TEST(CorpusReader, MalformedLinesAreNamed) {
  const std::string good = "{\"text\": \"x\"}\n";
  EXPECT_EQ("line 3: it is not JSON from column 10 on", ErrorOf(good + "\n{\"text\": x}\n" + good));
  EXPECT_EQ("line 2: it is not JSON from column 11 on", ErrorOf(good + "{\"text\": \"\n"));
  EXPECT_EQ("line 1: it has a number that is too large", ErrorOf("{\"text\": 1e999}\n"));
  EXPECT_EQ("line 1: it is no JSON object", ErrorOf("[1]\n"));
  EXPECT_EQ("line 1: its \"text\" is no string", ErrorOf("{\"text\": 1}\n"));
  EXPECT_EQ("line 2: it has no \"text\"; --jsonl-key names the member with the text",
            ErrorOf(good + "{\"txt\": \"x\"}"));
  EXPECT_TRUE(ErrorOf("{\"text\": \"\\ud800\"}\n").starts_with("line 1: it is not JSON"));
  EXPECT_TRUE(ErrorOf(std::string(100000, '[')).starts_with("line 1: it is not JSON"));
  EXPECT_TRUE(
      ErrorOf(std::string("{\"text\": \"a\0b\"}", 15)).starts_with("line 1: it is not JSON"));
}

TEST(CorpusReader, InvalidUtf8IsNamedByItsByteOrReplaced) {
  const std::string reason = " is not UTF-8; --invalid-utf8 replace puts U+FFFD in its place";
  EXPECT_EQ("byte 3 (0xff)" + reason, ReadAll(TextFile("abc\xff").path()).error);
  EXPECT_EQ("byte 3 (0xe2)" + reason, ReadAll(TextFile("abc\xe2\x82").path()).error);
  EXPECT_EQ("byte 22 (0xff)" + reason, ErrorOf("{\"text\": \"x\"}\n{\"text\":\xff \"x\"}\n"));
  const CorpusOptions replace{"text", InvalidUtf8::kReplace};
  EXPECT_EQ((Documents{"a\xef\xbf\xbd\xef\xbf\xbd"
                       "b"}),
            ReadAll(TextFile("a\xe2\x82"
                             "b")
                        .path(),
                    replace)
                .documents);
  EXPECT_EQ((Documents{"\xef\xbf\xbd"}),
            ReadAll(JsonLines("{\"text\": \"\xff\"}").path(), replace).documents);
  const std::string far = std::string(3000000, 'a') + "\xff";
  EXPECT_EQ("byte 3000000 (0xff)" + reason, ReadAll(TextFile(far).path()).error);
}

TEST(Utf8, WellFormedAndIllFormedSequences) {
  for (const char* good : {"", "a", "\xc2\x80", "\xdf\xbf", "\xe0\xa0\x80", "\xed\x9f\xbf",
                           "\xee\x80\x80", "\xf0\x90\x80\x80", "\xf4\x8f\xbf\xbf"})
    EXPECT_EQ(std::string(good).size(), ValidUtf8Bytes(good)) << good;
  for (const char* bad :
       {"\x80", "\xc0\x80", "\xc1\xbf", "\xe0\x9f\xbf", "\xed\xa0\x80", "\xf0\x8f\xbf\xbf",
        "\xf4\x90\x80\x80", "\xf5\x80\x80\x80", "\xc2", "\xe2\x82", "\xf0\x90\x80",
        "\xc2"
        "a",
        "\xe2\x82"
        "a"})
    EXPECT_EQ(0U, ValidUtf8Bytes(bad)) << bad;
}

TEST(CorpusReader, WhatIsNoReadableFile) {
  EXPECT_EQ("/nonexistent/a.jsonl: cannot be opened: No such file or directory",
            ReadAll("/nonexistent/a.jsonl").error);
  EXPECT_EQ("/dev/zero: not a regular file", ReadAll("/dev/zero").error);
}

}  // namespace
}  // namespace adaptive_train::corpus_reader_test
