// Text to tokens and back.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/result.h"

namespace adaptive_train {

/// A vocabulary. Immutable; any thread.
class Tokenizer {
 public:
  virtual ~Tokenizer() = default;

  /// "bytes" or "sentencepiece".
  virtual const char* name() const = 0;
  /// Number of tokens, including the one that ends documents.
  virtual std::int64_t vocab() const = 0;
  /// The token written after each document.
  virtual std::int32_t end_of_document() const = 0;
  /// The token that stands for text without a token of its own; -1 if every text has tokens.
  virtual std::int32_t unknown() const = 0;
  /// Appends the tokens of `text`, which is UTF-8.
  virtual Result<void> Encode(std::string_view text, std::vector<std::int32_t>& tokens) const = 0;
  /// The text of `tokens`. The end of a document and tokens outside the vocabulary become <N>.
  virtual std::string Decode(std::span<const std::int32_t> tokens) const = 0;
};

/// A token for each byte, 0 to 255, and 256 for the end of a document.
std::unique_ptr<Tokenizer> MakeByteTokenizer();

/// Whether this build has sentencepiece. Without it, the functions below fail and say so.
bool HasSentencePiece();

/// Takes the content of a sentencepiece model's file; `where` names it in errors. A document ends
/// with the model's </s>, or with one extra token if it has none. The model defines normalisation.
Result<std::unique_ptr<Tokenizer>> MakeSentencePieceTokenizer(const std::string& model,
                                                              const std::string& where);

struct SentencePieceTraining {
  std::int64_t vocab_size = 32000;
  std::string kind = "unigram";        // or "bpe"
  std::string normalization = "nfkc";  // or "none"
};

/// The trainer skips longer lines, and lines with this character, its own mark.
inline constexpr std::size_t kMostSentenceBytes = 4096;
inline constexpr std::string_view kSentencePieceMark = "\xe2\x96\x85";

/// Returns the next line to learn from, without its line feed; false at the end.
using LineSource = std::function<Result<bool>(std::string& line)>;

/// Trains a sentencepiece model on the lines of `source` (Kudo, Richardson 2018; unigram: Kudo
/// 2018) and returns the content of its file. Every text has tokens: rare characters are spelled in
/// bytes, and spaces and line feeds are kept. The result depends on the lines alone. Keeps all
/// lines in memory. Blocking; minutes for 100 MB. Errors: too little text, or a vocabulary too
/// small for its characters, with the allowed size.
Result<std::string> TrainSentencePiece(const LineSource& source,
                                       const SentencePieceTraining& training);

}  // namespace adaptive_train
