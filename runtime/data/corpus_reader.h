// Text files and .jsonl files as documents, piece by piece.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "core/result.h"

namespace adaptive_train {

/// Part of a document's text: valid UTF-8 of at most about a megabyte. It is cut after a line end
/// if possible, else before a space, else between two characters.
struct CorpusPiece {
  std::string text;
  bool ends_document = false;
};

enum class InvalidUtf8 : std::uint8_t { kRefuse, kReplace };

struct CorpusOptions {
  std::string jsonl_key = "text";  // the member that holds a document's text
  InvalidUtf8 invalid_utf8 = InvalidUtf8::kRefuse;
};

/// Reads one input from start to end. One thread. Holds one piece in memory, or one line of a
/// .jsonl file.
class CorpusReader {
 public:
  virtual ~CorpusReader() = default;

  /// Reads the next piece. Returns false at the end of the input, leaving `piece` unchanged.
  /// Blocking. Errors name the file and the byte or line. Text must be UTF-8 (unless it is
  /// replaced); a line must be JSON, have the member, and be at most 256 MiB.
  virtual Result<bool> Next(CorpusPiece& piece) = 0;
  /// The position in the input, and its size, in bytes.
  virtual std::int64_t bytes_read() const = 0;
  virtual std::int64_t size() const = 0;
};

/// Opens `path`. A file named *.jsonl or *.ndjson has one document per non-blank line; any other is
/// one document. A byte order mark at the start is skipped.
Result<std::unique_ptr<CorpusReader>> OpenCorpus(const std::string& path,
                                                 const CorpusOptions& options);

}  // namespace adaptive_train
