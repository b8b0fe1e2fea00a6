// Turns text into tokens on disk, for `adaptive-train data build`.
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

/// Callbacks of the builder, on the caller's thread.
struct BuildEvents {
  std::function<void(const BuildProgress&)> on_progress;  // about once a megabyte
  /// Called before the first temporary file is created. Until then the process can be killed at any
  /// time without leaving files. Training a vocabulary cannot be stopped in any other way.
  std::function<void()> before_writing;
  /// Called about once a megabyte after before_writing; true ends the build with kInterrupted.
  std::function<bool()> stop_asked;
};

/// Reads the inputs, trains a model if none is given, and writes PREFIX.bin, PREFIX.idx,
/// PREFIX.model (sentencepiece) and, last, PREFIX.json. Each file has a temporary name until
/// complete. An end token follows each document; documents without text are counted and left out.
///
/// Memory holds one piece of text, 12 bytes per document, and sentencepiece's training text. The
/// result depends only on the inputs and options. Blocking. Errors: an unreadable or malformed
/// input, an output that exists, too little text for the vocabulary, a full disk. No files are left
/// behind.
Result<DatasetRecord> BuildDataset(const BuildRequest& request, const BuildEvents& events);

}  // namespace adaptive_train
