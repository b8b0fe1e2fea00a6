// Text to tokens on disk: what `adaptive-train data build` does.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "core/result.h"
#include "runtime/data/corpus_reader.h"
#include "runtime/data/dataset_record.h"

namespace adaptive_train {

struct BuildRequest {
  std::vector<std::string> inputs;  // see OpenCorpus
  std::string output;               // PREFIX
  CorpusOptions corpus;
  std::string tokenizer = "sentencepiece";  // or "bytes"
  std::string model;                        // a sentencepiece model to use; empty: train one
  std::string kind = "unigram";             // of the model to train; or "bpe"
  std::string normalization = "nfkc";       // of the model to train; or "none"
  std::int64_t vocab_size = 32000;          // of the model to train
  std::int64_t sample_bytes = 0;            // text to train on; larger inputs are sampled evenly
  bool overwrite = false;
};

struct BuildProgress {
  const char* phase = "";  // "reading for the vocabulary" | "training the vocabulary" |
                           // "writing tokens"
  std::int64_t bytes = 0, total_bytes = 0;  // of the inputs
  std::int64_t documents = 0, tokens = 0;
};

/// What the builder tells and asks while it works, on the caller's thread.
struct BuildEvents {
  std::function<void(const BuildProgress&)> on_progress;  // about once a megabyte
  /// Before the first temporary file is made. Until then the process may be killed at any time
  /// without leaving anything behind; training a vocabulary cannot be stopped in another way.
  std::function<void()> before_writing;
  /// Looked at about once a megabyte from before_writing on; true ends the build with kInterrupted.
  std::function<bool()> stop_asked;
};

/// Reads the inputs, trains a model where none is given, and writes PREFIX.bin, PREFIX.idx,
/// PREFIX.model (sentencepiece) and, last, PREFIX.json; each is made under a temporary name. Behind
/// each document comes its end token; documents without text are left out and counted. In memory
/// are one piece of text, 12 bytes a document and what sentencepiece trains on. The result depends
/// on the inputs and options alone. Blocking. Errors: an input that cannot be read or is malformed,
/// an output that exists, a text too small for the vocabulary, a full disk; nothing is left behind.
Result<DatasetRecord> BuildDataset(const BuildRequest& request, const BuildEvents& events);

}  // namespace adaptive_train
