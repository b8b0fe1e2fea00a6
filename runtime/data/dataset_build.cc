// Two passes over the text: one for the vocabulary, one for the tokens.
#include "runtime/data/dataset_build.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <optional>
#include <random>
#include <string_view>
#include <system_error>
#include <utility>

#include "core/file_io.h"
#include "runtime/data/staged_file.h"
#include "runtime/data/token_writer.h"
#include "runtime/data/tokenizer.h"

namespace adaptive_train {
namespace {

constexpr std::size_t kMostModelBytes = std::size_t{256} << 20;
/// From this vocabulary size on, Megatron's own tools write int32.
constexpr std::int64_t kUint16Vocab = 65500;

/// All inputs as one stream of pieces.
class Corpus {
 public:
  static Result<Corpus> Open(const BuildRequest& request) {
    Corpus corpus;
    corpus.names_ = request.inputs;
    corpus.options_ = request.corpus;
    for (const std::string& name : request.inputs) {
      const auto reader = OpenCorpus(name, request.corpus);
      if (!reader) return tl::unexpected(reader.error());
      corpus.total_bytes_ += (*reader)->size();
    }
    return corpus;
  }

  Result<bool> Next(CorpusPiece& piece) {
    for (;;) {
      if (!reader_) {
        if (next_ == names_.size()) return false;
        auto reader = OpenCorpus(names_[next_], options_);
        if (!reader) return tl::unexpected(reader.error());
        reader_ = std::move(*reader);
        ++next_;
      }
      const Result<bool> more = reader_->Next(piece);
      if (!more || *more) return more;
      finished_bytes_ += reader_->size();
      reader_.reset();
    }
  }
  std::int64_t bytes_read() const {
    return finished_bytes_ + (reader_ ? reader_->bytes_read() : 0);
  }
  std::int64_t total_bytes() const { return total_bytes_; }

 private:
  std::vector<std::string> names_;
  CorpusOptions options_;
  std::size_t next_ = 0;
  std::unique_ptr<CorpusReader> reader_;
  std::int64_t finished_bytes_ = 0, total_bytes_ = 0;
};

/// Calls on_progress about once a megabyte of input.
class Meter {
 public:
  Meter(const BuildEvents& events, const char* phase, const Corpus& corpus)
      : events_(events), corpus_(corpus) {
    now_.phase = phase;
    now_.total_bytes = corpus.total_bytes();
  }
  /// True when other work is due.
  bool Tick(std::int64_t documents, std::int64_t tokens) {
    constexpr std::int64_t kStep = std::int64_t{1} << 19;
    if (corpus_.bytes_read() < told_ + kStep) return false;
    told_ = corpus_.bytes_read();
    now_.bytes = told_;
    now_.documents = documents;
    now_.tokens = tokens;
    if (events_.on_progress) events_.on_progress(now_);
    return true;
  }

 private:
  const BuildEvents& events_;
  const Corpus& corpus_;
  BuildProgress now_;
  std::int64_t told_ = 0;
};

/// Lines of the corpus for training a vocabulary. Each is taken with the probability that makes
/// them sample_bytes in total, with a fixed random seed.
class SampledLines {
 public:
  SampledLines(Corpus corpus, std::int64_t sample_bytes, const BuildEvents& events)
      : corpus_(std::move(corpus)),
        events_(events),
        meter_(events, "reading for the vocabulary", corpus_) {
    const auto total = static_cast<double>(std::max<std::int64_t>(1, corpus_.total_bytes()));
    share_ = sample_bytes <= 0 ? 1 : static_cast<double>(sample_bytes) / total;
  }

  Result<bool> Next(std::string& line) {
    for (;;) {
      while (!rest_.empty()) {
        line = TakeLine();
        if (!line.empty() && Chosen()) return true;
      }
      const Result<bool> more = corpus_.Next(piece_);
      if (!more) return more;
      if (!*more) {
        if (events_.on_progress)
          events_.on_progress(
              {"training the vocabulary", corpus_.total_bytes(), corpus_.total_bytes(), 0, 0});
        return false;
      }
      rest_ = piece_.text;
      meter_.Tick(0, 0);
    }
  }

 private:
  /// Up to a line feed or the trainer's mark. Long lines are split between characters.
  std::string TakeLine() {
    const std::size_t feed = std::min(rest_.find('\n'), rest_.size());
    // Searched in the line only: the mark is rare, and the rest of the piece may be long.
    const std::size_t mark = std::min(rest_.substr(0, feed).find(kSentencePieceMark), feed);
    std::size_t end = std::min(feed, mark), skip = 0;
    if (end > kMostSentenceBytes) {
      end = kMostSentenceBytes;
      while ((static_cast<unsigned char>(rest_[end]) & 0xc0) == 0x80) --end;
    } else if (end < rest_.size()) {
      skip = mark < feed ? kSentencePieceMark.size() : 1;
    }
    std::string line(rest_.substr(0, end));
    rest_.remove_prefix(end + skip);
    return line;
  }
  bool Chosen() { return share_ >= 1 || static_cast<double>(engine_() >> 11) * 0x1p-53 < share_; }

  Corpus corpus_;
  const BuildEvents& events_;
  Meter meter_;
  double share_ = 1;
  CorpusPiece piece_;
  std::string_view rest_;
  std::mt19937_64 engine_{20260101};
};

struct Vocabulary {
  std::unique_ptr<Tokenizer> tokenizer;
  std::string model;  // the bytes of PREFIX.model; empty: none
};

Result<Vocabulary> MakeVocabulary(const BuildRequest& request, const BuildEvents& events) {
  Vocabulary vocabulary;
  if (request.tokenizer == "bytes") {
    vocabulary.tokenizer = MakeByteTokenizer();
    return vocabulary;
  }
  Result<std::string> model = std::string();
  if (!request.model.empty()) {
    model = ReadFile(request.model, kMostModelBytes);
  } else {
    Result<Corpus> corpus = Corpus::Open(request);
    if (!corpus) return tl::unexpected(corpus.error());
    SampledLines lines(std::move(*corpus), request.sample_bytes, events);
    model = TrainSentencePiece([&](std::string& line) { return lines.Next(line); },
                               {request.vocab_size, request.kind, request.normalization});
  }
  if (!model) return tl::unexpected(model.error());
  auto tokenizer = MakeSentencePieceTokenizer(
      *model, request.model.empty() ? "the new vocabulary" : request.model);
  if (!tokenizer) return tl::unexpected(tokenizer.error());
  vocabulary.tokenizer = std::move(*tokenizer);
  vocabulary.model = std::move(*model);
  return vocabulary;
}

/// The second pass: writes every document to `writer` and counts it in `record`.
Result<void> WriteTokens(Corpus corpus, const Tokenizer& tokenizer, const BuildEvents& events,
                         TokenWriter& writer, DatasetRecord& record) {
  Meter meter(events, "writing tokens", corpus);
  CorpusPiece piece;
  std::vector<std::int32_t> tokens;
  bool has_text = false;
  for (;;) {
    const Result<bool> more = corpus.Next(piece);
    if (!more) return tl::unexpected(more.error());
    if (!*more) break;
    tokens.clear();
    if (Result<void> done = tokenizer.Encode(piece.text, tokens); !done) return done;
    has_text |= !tokens.empty();
    record.text_bytes += static_cast<std::int64_t>(piece.text.size());
    record.unknown_tokens += std::count(tokens.begin(), tokens.end(), tokenizer.unknown());
    if (piece.ends_document && has_text) tokens.push_back(tokenizer.end_of_document());
    if (Result<void> done = writer.Append(tokens); !done) return done;
    if (piece.ends_document) {
      if (has_text) writer.EndDocument();
      ++(has_text ? record.documents : record.empty_documents);
      has_text = false;
    }
    if (meter.Tick(record.documents, writer.tokens()) && events.stop_asked && events.stop_asked())
      return Fail("stopped; nothing was written", ExitCode::kInterrupted);
  }
  record.tokens = writer.tokens();
  if (record.documents == 0) return Fail("the inputs have no text: there is nothing to write");
  return {};
}

Result<StagedFile> Stage(const std::string& path, std::string_view bytes) {
  Result<StagedFile> file = StagedFile::Create(path);
  if (!file) return file;
  Result<void> written = file->Append(bytes);
  if (written) written = file->Sync();
  if (!written) return tl::unexpected(written.error());
  return file;
}

/// An unsynced folder may lose names in a power failure. Some network file systems cannot sync one.
void SyncFolderOf(const std::string& path) {
  const std::filesystem::path folder = std::filesystem::path(path).parent_path();
  const int descriptor =
      ::open(folder.empty() ? "." : folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (descriptor < 0) return;
  ::fsync(descriptor);
  ::close(descriptor);
}

/// Removes the old index and record first, so that they are never beside tokens of another build.
Result<void> Publish(const std::string& prefix, TokenWriter& writer, const std::string& model,
                     const DatasetRecord& record) {
  if (Result<void> synced = writer.bin().Sync(); !synced) return synced;
  Result<StagedFile> index = Stage(prefix + ".idx", writer.Index());
  if (!index) return tl::unexpected(index.error());
  Result<StagedFile> json = Stage(prefix + ".json", ToJson(record));
  if (!json) return tl::unexpected(json.error());
  std::optional<StagedFile> model_file;
  if (!model.empty()) {
    Result<StagedFile> staged = Stage(prefix + ".model", model);
    if (!staged) return tl::unexpected(staged.error());
    model_file.emplace(std::move(*staged));
  }
  for (const char* old : {".json", ".idx", ".model"}) ::unlink((prefix + old).c_str());
  Result<void> done = writer.bin().Publish();
  if (done && model_file) done = model_file->Publish();
  if (done) done = index->Publish();
  if (done) done = json->Publish();
  SyncFolderOf(prefix);
  return done;
}

Result<void> CheckOutput(const BuildRequest& request) {
  for (const char* ending : {".bin", ".idx", ".model", ".json"}) {
    const std::string path = request.output + ending;
    std::error_code error;
    for (const std::string& input : request.inputs) {
      if (std::filesystem::equivalent(input, path, error))
        return Fail(fmt::format("{}: it is an input; choose another --output", path));
    }
    const bool reused =
        !request.model.empty() && std::filesystem::equivalent(request.model, path, error);
    if (!request.overwrite && !reused && std::filesystem::exists(path, error))
      return Fail(fmt::format("{}: it exists; choose another --output, or give --overwrite", path));
  }
  // Checked before the vocabulary is trained, which takes long.
  const auto folder = std::filesystem::path(request.output).parent_path();
  return folder.empty() ? Result<void>{} : MakeFolder(folder.string());
}

}  // namespace

Result<DatasetRecord> BuildDataset(const BuildRequest& request, const BuildEvents& events) {
  if (Result<void> checked = CheckOutput(request); !checked) return tl::unexpected(checked.error());
  Result<Corpus> corpus = Corpus::Open(request);
  if (!corpus) return tl::unexpected(corpus.error());
  Result<Vocabulary> vocabulary = MakeVocabulary(request, events);
  if (!vocabulary) return tl::unexpected(vocabulary.error());
  const Tokenizer& tokenizer = *vocabulary->tokenizer;
  const TokenType type = tokenizer.vocab() < kUint16Vocab ? TokenType::kUint16 : TokenType::kInt32;
  DatasetRecord record;
  record.tokenizer = tokenizer.name();
  record.normalization = request.tokenizer == "bytes" ? "none"
                         : request.model.empty()      ? request.normalization
                                                      : "model";
  record.vocab_size = tokenizer.vocab();
  record.end_of_document = tokenizer.end_of_document();
  record.token_type = FactsOf(type).name;
  record.sources = request.inputs;
  if (events.before_writing) events.before_writing();
  Result<StagedFile> bin = StagedFile::Create(request.output + ".bin");
  if (!bin) return tl::unexpected(bin.error());
  TokenWriter writer(std::move(*bin), type);
  Result<void> done = WriteTokens(std::move(*corpus), tokenizer, events, writer, record);
  if (done) done = Publish(request.output, writer, vocabulary->model, record);
  if (!done) return tl::unexpected(done.error());
  return record;
}

}  // namespace adaptive_train
