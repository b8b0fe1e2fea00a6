// Implements Tokenizer with the sentencepiece library; the only file that includes it.
#include <fmt/format.h>
#include <sentencepiece_processor.h>
#include <sentencepiece_trainer.h>

#include <cstdlib>
#include <optional>
#include <unordered_map>
#include <utility>

#include "core/file_io.h"
#include "runtime/data/tokenizer.h"

namespace adaptive_train {
namespace {

using sentencepiece::util::Status;

/// The library prefixes messages with a source line: "INTERNAL: trainer.cc(12) [x] why".
std::string Reason(const Status& status) {
  std::string text = status.error_message();
  if (const auto bracket = text.find("] "); bracket != text.npos) text.erase(0, bracket + 2);
  return Printable(text, 300);
}

class SentencePieceTokenizer : public Tokenizer {
 public:
  explicit SentencePieceTokenizer(std::unique_ptr<sentencepiece::SentencePieceProcessor> model)
      : model_(std::move(model)) {}

  const char* name() const override { return "sentencepiece"; }
  std::int64_t vocab() const override {
    return model_->GetPieceSize() + (model_->eos_id() < 0 ? 1 : 0);
  }
  std::int32_t end_of_document() const override {
    return model_->eos_id() < 0 ? model_->GetPieceSize() : model_->eos_id();
  }
  std::int32_t unknown() const override { return model_->unk_id(); }

  Result<void> Encode(std::string_view text, std::vector<std::int32_t>& tokens) const override {
    std::vector<int> pieces;
    if (const Status status = model_->Encode(text, &pieces); !status.ok())
      return Fail(fmt::format("sentencepiece: {}", Reason(status)));
    tokens.insert(tokens.end(), pieces.begin(), pieces.end());
    return {};
  }

  std::string Decode(std::span<const std::int32_t> tokens) const override {
    std::string text;
    std::vector<int> pieces;
    const auto flush = [&] {
      std::string part;
      if (!pieces.empty() && model_->Decode(pieces, &part).ok()) text += part;
      pieces.clear();
    };
    for (const std::int32_t token : tokens) {
      if (token >= 0 && token < model_->GetPieceSize() && !model_->IsControl(token)) {
        pieces.push_back(token);
      } else {
        flush();
        text += fmt::format("<{}>", token);
      }
    }
    flush();
    return text;
  }

 private:
  std::unique_ptr<sentencepiece::SentencePieceProcessor> model_;
};

/// The source from which the trainer reads its lines.
class Lines : public sentencepiece::SentenceIterator {
 public:
  explicit Lines(const LineSource& source) : source_(source) { Next(); }
  bool done() const override { return done_; }
  void Next() override {
    const Result<bool> more = source_(line_);
    if (!more) error_ = more.error();
    done_ = !more || !*more;
  }
  const std::string& value() const override { return line_; }
  Status status() const override { return Status(); }
  const std::optional<Error>& error() const { return error_; }

 private:
  const LineSource& source_;
  std::string line_;
  bool done_ = false;
  std::optional<Error> error_;
};

/// Rephrases the trainer's two refusals: "... set it to a value <= 981" and "... 200 vs 278".
std::string TrainingFailure(const Status& status, std::int64_t vocab_size) {
  const std::string reason = Reason(status);
  const auto number_behind = [&](std::string_view mark) -> std::int64_t {
    const auto found = reason.find(mark);
    return found == reason.npos ? 0
                                : std::strtoll(reason.c_str() + found + mark.size(), nullptr, 10);
  };
  if (const std::int64_t most = number_behind("a value <= "); most > 0) {
    return fmt::format(
        "the text is too small for a vocabulary of {} tokens: allowed are {} at most", vocab_size,
        most);
  }
  if (const std::int64_t least = number_behind(" vs "); least > 0) {
    return fmt::format(
        "a vocabulary of {} tokens is too small for the text's characters and the 256 "
        "bytes: allowed are {} at least",
        vocab_size, least + 1);
  }
  if (reason.empty()) return "the text has no line to learn a vocabulary from";
  return fmt::format("training a vocabulary of {} tokens: {}", vocab_size, reason);
}

}  // namespace

bool HasSentencePiece() { return true; }

Result<std::unique_ptr<Tokenizer>> MakeSentencePieceTokenizer(const std::string& model,
                                                              const std::string& where) {
  auto processor = std::make_unique<sentencepiece::SentencePieceProcessor>();
  if (const Status status = processor->LoadFromSerializedProto(model); !status.ok()) {
    return Fail(fmt::format("{}: not a sentencepiece model: {}", where, Reason(status)));
  }
  std::unique_ptr<Tokenizer> tokenizer =
      std::make_unique<SentencePieceTokenizer>(std::move(processor));
  return tokenizer;
}

Result<std::string> TrainSentencePiece(const LineSource& source,
                                       const SentencePieceTraining& training) {
  // Sixteen threads on every machine: the sums of the expectation step depend on their number.
  const std::unordered_map<std::string, std::string> options = {
      {"model_type", training.kind},
      {"vocab_size", std::to_string(training.vocab_size)},
      {"normalization_rule_name", training.normalization == "none" ? "identity" : "nfkc"},
      {"byte_fallback", "true"},
      {"add_dummy_prefix", "false"},
      {"remove_extra_whitespaces", "false"},
      {"character_coverage", "0.9995"},
      {"max_sentence_length", std::to_string(kMostSentenceBytes)},
      {"num_threads", "16"},
      {"minloglevel", "2"},
  };
  Lines lines(source);
  std::string model;
  const Status status = sentencepiece::SentencePieceTrainer::Train(options, &lines, &model);
  if (lines.error()) return tl::unexpected(*lines.error());
  if (!status.ok()) return Fail(TrainingFailure(status, training.vocab_size));
  return model;
}

}  // namespace adaptive_train
