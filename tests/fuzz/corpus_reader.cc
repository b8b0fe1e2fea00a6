// Text and JSON lines: what comes out is UTF-8, and the reader ends where the file does.
#include "runtime/data/corpus_reader.h"

#include <filesystem>

#include "runtime/data/utf8.h"
#include "tests/fuzz/fuzz.h"

namespace adaptive_train::fuzz {
namespace {

void ReadAll(const std::string& path, InvalidUtf8 invalid) {
  auto reader = OpenCorpus(path, {"text", invalid});
  Require(reader.has_value());
  CorpusPiece piece;
  for (;;) {
    const Result<bool> more = (*reader)->Next(piece);
    if (!more) return Require(!more.error().message.empty());
    if (!*more) break;
    Require(ValidUtf8Bytes(piece.text) == piece.text.size());
  }
  Require((*reader)->bytes_read() == (*reader)->size());
}

}  // namespace

// JSON lines are known by their name, so that they need a link of that name.
void FuzzOne(std::string_view input) {
  const MemoryFile file(input);
  static const std::string link =
      std::filesystem::temp_directory_path() / ("fuzz_" + std::to_string(::getpid()) + ".jsonl");
  std::filesystem::remove(link);
  std::filesystem::create_symlink(file.path(), link);
  for (const InvalidUtf8 invalid : {InvalidUtf8::kRefuse, InvalidUtf8::kReplace}) {
    ReadAll(file.path(), invalid);
    ReadAll(link, invalid);
  }
  std::filesystem::remove(link);
}

std::vector<std::string> FuzzSeeds() {
  return {"{\"text\": \"one\\n\\u00e9\", \"id\": 7}\n\n{\"text\":\"\"}\r\n{\"text\": \"last\"}",
          "\xef\xbb\xbf{\"a\":[1,2,{\"b\":null}],\"text\":\"\xf0\x9f\x98\x80 \xe2\x82\xac\"}\n",
          "plain text\n with \xc3\xa9 and \xe6\x97\xa5\xe6\x9c\xac\n",
          "{\"text\":\"\\ud83d\\ude00 \\\\ \\\" \\/ \\b\\f\\t\"}\n{\"text\":1e9}\n[true,false]\n"};
}

}  // namespace adaptive_train::fuzz
