// Readers of text and of JSON lines over one buffered file.
#include "runtime/data/corpus_reader.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <span>
#include <string_view>
#include <utility>

#include "runtime/data/regular_file.h"
#include "runtime/data/utf8.h"

namespace adaptive_train {
namespace {

constexpr std::size_t kPieceBytes = std::size_t{1} << 20;
constexpr std::size_t kMostLineBytes = std::size_t{256} << 20;
constexpr std::string_view kByteOrderMark = "\xef\xbb\xbf";

/// Where to cut `text` so that the first part has at most kPieceBytes.
std::size_t CutOf(std::string_view text) {
  if (text.size() <= kPieceBytes) return text.size();
  const std::string_view head = text.substr(0, kPieceBytes);
  if (const std::size_t line_end = head.rfind('\n'); line_end != head.npos) return line_end + 1;
  if (const std::size_t space = head.rfind(' '); space != head.npos && space > 0) return space;
  std::size_t cut = kPieceBytes;
  for (int back = 0; back < 3 && (static_cast<unsigned char>(text[cut]) & 0xc0) == 0x80; ++back)
    --cut;
  return cut;
}

/// A buffer that moves over the bytes of a file, as large as callers request.
class Window {
 public:
  explicit Window(RegularFile file) : file_(std::move(file)) {}

  const std::string& path() const { return file_.path(); }
  std::int64_t size() const { return file_.size(); }
  /// The file offset of text().
  std::int64_t place() const { return place_; }
  std::string_view text() const { return std::string_view(buffer_).substr(taken_); }
  bool at_end() const { return place_ + static_cast<std::int64_t>(text().size()) == size(); }

  /// Extends text() to `bytes`, or to the end of the file.
  Result<void> Fill(std::size_t bytes) {
    if (text().size() >= bytes) return {};
    buffer_.erase(0, taken_);
    taken_ = 0;
    const std::size_t old = buffer_.size();
    const std::int64_t from = place_ + static_cast<std::int64_t>(old);
    const std::int64_t more = std::min(static_cast<std::int64_t>(bytes - old), file_.size() - from);
    buffer_.resize(old + static_cast<std::size_t>(more));
    return file_.ReadAt(from, std::as_writable_bytes(std::span(buffer_).subspan(old)));
  }
  void Take(std::size_t bytes) {
    taken_ += bytes;
    place_ += static_cast<std::int64_t>(bytes);
  }
  Result<void> SkipByteOrderMark() {
    if (place_ != 0) return {};
    if (Result<void> filled = Fill(kByteOrderMark.size()); !filled) return filled;
    if (text().starts_with(kByteOrderMark)) Take(kByteOrderMark.size());
    return {};
  }

 private:
  RegularFile file_;
  std::string buffer_;
  std::size_t taken_ = 0;
  std::int64_t place_ = 0;
};

/// `text`, at file offset `place`, as valid UTF-8: unchanged, with replacements, or an error.
Result<std::string> AsUtf8(std::string_view text, const std::string& path, std::int64_t place,
                           InvalidUtf8 invalid) {
  const std::size_t valid = ValidUtf8Bytes(text);
  if (valid == text.size()) return std::string(text);
  if (invalid == InvalidUtf8::kReplace) return ReplaceInvalidUtf8(text);
  return Fail(fmt::format(
      "{}: byte {} (0x{:02x}) is not UTF-8; --invalid-utf8 replace puts U+FFFD in its place", path,
      place + static_cast<std::int64_t>(valid), static_cast<unsigned char>(text[valid])));
}

/// A whole file as one document.
class TextReader : public CorpusReader {
 public:
  TextReader(RegularFile file, const CorpusOptions& options)
      : window_(std::move(file)), invalid_utf8_(options.invalid_utf8) {}

  Result<bool> Next(CorpusPiece& piece) override {
    if (done_) return false;
    if (Result<void> skipped = window_.SkipByteOrderMark(); !skipped)
      return tl::unexpected(skipped.error());
    if (Result<void> filled = window_.Fill(kPieceBytes + 1); !filled)
      return tl::unexpected(filled.error());
    const std::size_t cut = CutOf(window_.text());
    Result<std::string> text =
        AsUtf8(window_.text().substr(0, cut), window_.path(), window_.place(), invalid_utf8_);
    if (!text) return tl::unexpected(text.error());
    window_.Take(cut);
    done_ = window_.at_end() && window_.text().empty();
    piece = {std::move(*text), done_};
    return true;
  }
  std::int64_t bytes_read() const override { return window_.place(); }
  std::int64_t size() const override { return window_.size(); }

 private:
  Window window_;
  const InvalidUtf8 invalid_utf8_;
  bool done_ = false;
};

/// One document per line.
class JsonLinesReader : public CorpusReader {
 public:
  JsonLinesReader(RegularFile file, CorpusOptions options)
      : window_(std::move(file)), options_(std::move(options)) {}

  Result<bool> Next(CorpusPiece& piece) override {
    while (!in_document_) {
      const Result<bool> more = NextLine();
      if (!more || !*more) return more;
    }
    const std::string_view rest = std::string_view(document_).substr(given_);
    const std::size_t cut = CutOf(rest);
    given_ += cut;
    in_document_ = given_ < document_.size();
    piece = {std::string(rest.substr(0, cut)), !in_document_};
    return true;
  }
  std::int64_t bytes_read() const override { return window_.place(); }
  std::int64_t size() const override { return window_.size(); }

 private:
  /// Reads one line; a blank one leaves in_document_ false. Returns false at the end of the file.
  Result<bool> NextLine() {
    if (Result<void> skipped = window_.SkipByteOrderMark(); !skipped)
      return tl::unexpected(skipped.error());
    const Result<std::size_t> end = LineEnd();
    if (!end) return tl::unexpected(end.error());
    if (*end == 0) return false;
    ++line_;
    const Result<std::string> line = AsUtf8(window_.text().substr(0, *end), window_.path(),
                                            window_.place(), options_.invalid_utf8);
    if (!line) return tl::unexpected(line.error());
    window_.Take(*end);
    if (line->find_first_not_of(" \t\r\n") == line->npos) return true;
    if (Result<void> parsed = Parse(*line); !parsed) return tl::unexpected(parsed.error());
    in_document_ = true;
    given_ = 0;
    return true;
  }

  /// Bytes of the next line including its line feed; 0 at the end of the file.
  Result<std::size_t> LineEnd() {
    for (std::size_t looked_at = 0;;) {
      const std::string_view text = window_.text();
      const std::size_t feed = text.find('\n', looked_at);
      if (std::min(feed, text.size()) > kMostLineBytes)
        return Wrong(fmt::format("it is longer than {} MiB", kMostLineBytes >> 20), line_ + 1);
      if (feed != text.npos) return feed + 1;
      if (window_.at_end()) return text.size();
      looked_at = text.size();
      if (Result<void> filled = window_.Fill(looked_at + kPieceBytes); !filled)
        return tl::unexpected(filled.error());
    }
  }

  Result<void> Parse(const std::string& line) {
    try {
      nlohmann::json json = nlohmann::json::parse(line);
      if (!json.is_object()) return Wrong("it is no JSON object", line_);
      const auto member = json.find(options_.jsonl_key);
      if (member == json.end()) {
        return Wrong(fmt::format("it has no \"{}\"; --jsonl-key names the member with the text",
                                 options_.jsonl_key),
                     line_);
      }
      if (!member->is_string())
        return Wrong(fmt::format("its \"{}\" is no string", options_.jsonl_key), line_);
      document_ = std::move(member->get_ref<std::string&>());
      return {};
    } catch (const nlohmann::json::parse_error& error) {
      return Wrong(fmt::format("it is not JSON from column {} on", error.byte), line_);
    } catch (const nlohmann::json::out_of_range&) {
      return Wrong("it has a number that is too large", line_);
    }
  }

  tl::unexpected<Error> Wrong(const std::string& what, std::int64_t line) const {
    return Fail(fmt::format("{}: line {}: {}", window_.path(), line, what));
  }

  Window window_;
  const CorpusOptions options_;
  std::int64_t line_ = 0;
  std::string document_;
  std::size_t given_ = 0;
  bool in_document_ = false;
};

}  // namespace

Result<std::unique_ptr<CorpusReader>> OpenCorpus(const std::string& path,
                                                 const CorpusOptions& options) {
  Result<RegularFile> file = RegularFile::Open(path);
  if (!file) return tl::unexpected(file.error());
  const auto named = [&](const char* ending) { return path.ends_with(ending); };
  std::unique_ptr<CorpusReader> reader;
  if (named(".jsonl") || named(".ndjson")) {
    reader = std::make_unique<JsonLinesReader>(std::move(*file), options);
  } else {
    reader = std::make_unique<TextReader>(std::move(*file), options);
  }
  return reader;
}

}  // namespace adaptive_train
