// Text files and .jsonl files as documents, piece by piece.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "core/result.h"

namespace adaptive_train {

/// Part of a document's text: valid UTF-8 of at most about a megabyte, cut behind a line end where
/// there is one, else before a space, else between two characters.
struct CorpusPiece {
  std::string text;
  bool ends_document = false;
};

enum class InvalidUtf8 : std::uint8_t { kRefuse, kReplace };

struct CorpusOptions {
  std::string jsonl_key = "text";  // the member that holds a document's text
  InvalidUtf8 invalid_utf8 = InvalidUtf8::kRefuse;
};

/// Reads one input from its beginning to its end. One thread; memory for one piece, or one line of
/// a .jsonl file.
class CorpusReader {
 public:
  virtual ~CorpusReader() = default;

  /// The next piece. False, and `piece` unchanged, at the end of the input. Blocking. Errors name
  /// the file and the byte or the line: text that is not UTF-8 (unless it is replaced), a line that
  /// is not JSON, has no such member or is longer than 256 MiB.
  virtual Result<bool> Next(CorpusPiece& piece) = 0;
  /// How far into the input the reader is, and how large it is, in bytes.
  virtual std::int64_t bytes_read() const = 0;
  virtual std::int64_t size() const = 0;
};

/// Opens `path`: a file named *.jsonl or *.ndjson has a document in each line that is not blank,
/// any other is one document. A byte order mark at the beginning is left out.
Result<std::unique_ptr<CorpusReader>> OpenCorpus(const std::string& path,
                                                 const CorpusOptions& options);

}  // namespace adaptive_train
