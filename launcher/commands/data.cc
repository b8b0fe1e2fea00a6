// Creates and shows training data from the command line.
#include "launcher/commands/data.h"

#include <fmt/format.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <memory>
#include <optional>
#include <string>

#include "core/exit_code.h"
#include "launcher/commands/data_show.h"
#include "launcher/commands/outcome.h"
#include "launcher/steps/stop_signals.h"
#include "runtime/data/dataset_build.h"

namespace adaptive_train {
namespace {

constexpr std::int64_t kMiB = 1 << 20;

constexpr const char* kDataFooter = R"(Examples:
  adaptive-train data build book.txt --output data/book
  adaptive-train data build web-*.jsonl --output data/web --vocab-size 50000
  adaptive-train data build more.jsonl --output data/more --model data/web.model
  adaptive-train data show data/web
Train on it with data.train = "data/web" and model.vocab of at least the vocabulary's size.)";

constexpr const char* kBuildFooter =
    R"(A file named *.jsonl or *.ndjson has a document in each line, any other file is one document.
Written are PREFIX.bin and PREFIX.idx (Megatron's format), PREFIX.model and PREFIX.json.
Exit codes: 0 done, 2 wrong usage or input, 130 or 143 stopped: nothing was written.)";

/// Progress on standard error: on a terminal one line that is rewritten, elsewhere a line for each
/// tenth.
class BuildLine {
 public:
  void Show(const BuildProgress& progress) {
    const auto now = std::chrono::steady_clock::now();
    const bool new_phase = phase_ != progress.phase;
    if (new_phase) {
      phase_ = progress.phase;
      tenths_ = 0;
      began_ = now;
    }
    const std::int64_t tenths =
        10 * progress.bytes / std::max<std::int64_t>(1, progress.total_bytes);
    const bool due = terminal_ ? now - drawn_ >= std::chrono::milliseconds(100) : tenths > tenths_;
    if (!due && !new_phase) return;
    tenths_ = tenths;
    drawn_ = now;
    const std::string line = LineOf(progress, std::chrono::duration<double>(now - began_).count());
    std::fputs((terminal_ ? "\r\x1b[K" + line : line + "\n").c_str(), stderr);
    open_ = terminal_;
  }
  void End() {
    if (open_) std::fputs("\n", stderr);
    open_ = false;
  }

 private:
  std::string LineOf(const BuildProgress& progress, double seconds) const {
    const double done = static_cast<double>(progress.bytes);
    const double share =
        done / static_cast<double>(std::max<std::int64_t>(1, progress.total_bytes));
    const auto filled = static_cast<std::size_t>(20 * std::min(1.0, share));
    std::string line =
        terminal_ ? "[" + std::string(filled, '#') + std::string(20 - filled, '.') + "] " : "";
    line += fmt::format("{}: {:.0f} % of {:.1f} MB", progress.phase, 100 * share,
                        1e-6 * static_cast<double>(progress.total_bytes));
    if (seconds > 0.5) line += fmt::format(", {:.1f} MB/s", 1e-6 * done / seconds);
    if (progress.tokens > 0)
      line += fmt::format(", {} documents, {} tokens", progress.documents, progress.tokens);
    return line.substr(0, terminal_ ? 79 : line.npos);
  }

  const bool terminal_ = ::isatty(STDERR_FILENO) == 1;
  std::string phase_;
  std::int64_t tenths_ = 0;
  bool open_ = false;
  std::chrono::steady_clock::time_point began_, drawn_;
};

struct BuildArguments {
  BuildRequest request;
  std::int64_t sample_mib = 100;
  std::string invalid_utf8 = "refuse";
  bool json = false;
  const CLI::Option *vocab_size = nullptr, *kind = nullptr, *normalize = nullptr, *sample = nullptr,
                    *model = nullptr;
};

/// Refuses options that would have no effect.
Result<void> CheckBuild(const BuildArguments& a) {
  const bool bytes = a.request.tokenizer == "bytes";
  if (bytes && a.model->count() > 0)
    return Fail("--model is a sentencepiece model: leave it out with --tokenizer bytes");
  for (const CLI::Option* option : {a.vocab_size, a.kind, a.normalize, a.sample}) {
    if (option->count() == 0) continue;
    if (bytes) {
      return Fail(
          fmt::format("{} is for training a vocabulary: leave it out with --tokenizer bytes",
                      option->get_name()));
    }
    if (a.model->count() > 0) {
      return Fail(
          fmt::format("{} is for training a vocabulary: leave it out with --model, which "
                      "has its own",
                      option->get_name()));
    }
  }
  return {};
}

int RunDataBuild(BuildArguments& a) {
  if (const Result<void> checked = CheckBuild(a); !checked)
    return ReportError("data", checked.error());
  a.request.sample_bytes = a.sample_mib * kMiB;
  a.request.corpus.invalid_utf8 =
      a.invalid_utf8 == "replace" ? InvalidUtf8::kReplace : InvalidUtf8::kRefuse;
  BuildLine line;
  std::optional<HeldSignals> held;
  std::optional<int> stopped_by;
  BuildEvents events;
  events.on_progress = [&](const BuildProgress& progress) { line.Show(progress); };
  events.before_writing = [&] { held.emplace(); };
  events.stop_asked = [&] {
    stopped_by = PendingStopSignal();
    return stopped_by.has_value();
  };
  const Result<DatasetRecord> record = BuildDataset(a.request, events);
  line.End();
  if (!record && stopped_by) {
    return ReportError("data",
                       {fmt::format("stopped by {}; nothing was written", ::strsignal(*stopped_by)),
                        *stopped_by == SIGINT ? ExitCode::kInterrupted : ExitCode::kTerminated});
  }
  if (!record) return ReportError("data", record.error());
  if (a.json) {
    fmt::print("{}", ToJson(*record));
    return ToInt(ExitCode::kDone);
  }
  fmt::print("{}: {} {} tokens in {} documents, vocabulary of {} ({}); {} ends a document\n",
             a.request.output, record->tokens, record->token_type, record->documents,
             record->vocab_size, record->tokenizer, record->end_of_document);
  if (record->empty_documents > 0)
    fmt::print("{} documents without text were left out\n", record->empty_documents);
  if (record->unknown_tokens > 0)
    fmt::print("{} tokens are unknown: the model has none for their text\n",
               record->unknown_tokens);
  return ToInt(ExitCode::kDone);
}

void AddBuild(CLI::App& data, std::function<int()>& chosen) {
  auto arguments = std::make_shared<BuildArguments>();
  BuildArguments& a = *arguments;
  BuildRequest& r = a.request;
  CLI::App* build = data.add_subcommand("build", "Make tokens of text");
  build->footer(kBuildFooter);
  build->add_option("INPUT", r.inputs, "Text files, and .jsonl files")->required();
  build->add_option("--output", r.output, "Where to: PREFIX.bin, .idx, .model, .json")
      ->required()
      ->type_name("PREFIX");
  build->add_option("--tokenizer", r.tokenizer, "sentencepiece, or bytes: a token for each byte")
      ->check(CLI::IsMember({"sentencepiece", "bytes"}))
      ->capture_default_str();
  a.vocab_size =
      build->add_option("--vocab-size", r.vocab_size, "Tokens of the vocabulary to train")
          ->check(CLI::Range(std::int64_t{1}, std::int64_t{1} << 24))
          ->capture_default_str();
  a.kind = build->add_option("--model-type", r.kind, "How it is trained")
               ->check(CLI::IsMember({"unigram", "bpe"}))
               ->capture_default_str();
  a.normalize = build->add_option("--normalize", r.normalization, "Unicode form, kept in the model")
                    ->check(CLI::IsMember({"nfkc", "none"}))
                    ->capture_default_str();
  a.sample = build
                 ->add_option("--sample-size", a.sample_mib,
                              "MiB of text to train on, drawn evenly from larger inputs")
                 ->check(CLI::Range(std::int64_t{1}, std::int64_t{1} << 20))
                 ->capture_default_str();
  a.model = build->add_option("--model", r.model, "Use this sentencepiece model; train none")
                ->type_name("FILE.model");
  build->add_option("--jsonl-key", r.corpus.jsonl_key, "The member with a document's text")
      ->capture_default_str();
  build->add_option("--invalid-utf8", a.invalid_utf8, "Refuse it, or replace it by U+FFFD")
      ->check(CLI::IsMember({"refuse", "replace"}))
      ->capture_default_str();
  build->add_flag("--overwrite", r.overwrite, "Replace a data set of that name");
  build->add_flag("--json", a.json, "Print PREFIX.json instead of a line for people");
  build->callback(
      [arguments, &chosen] { chosen = [arguments] { return RunDataBuild(*arguments); }; });
}

void AddShow(CLI::App& data, std::function<int()>& chosen) {
  auto request = std::make_shared<DataShowRequest>();
  CLI::App* show = data.add_subcommand("show", "Show what a data set holds");
  show->add_option("PATH", request->path, "What data.train would name")->required();
  show->add_option("--format", request->format, "As data.format")
      ->check(CLI::IsMember({"auto", "megatron", "llmc", "uint16", "bytes"}))
      ->capture_default_str();
  show->add_option("--tokens", request->first_tokens, "How many of the first tokens to show")
      ->check(CLI::Range(std::int64_t{0}, std::int64_t{1000000}))
      ->capture_default_str();
  show->add_flag("--json", request->json, "One JSON document instead of lines for people");
  show->callback([request, &chosen] { chosen = [request] { return RunDataShow(*request); }; });
}

}  // namespace

void AddDataCommand(CLI::App& app, std::function<int()>& chosen) {
  CLI::App* data =
      app.add_subcommand("data", "Make training data of text, and show what a data set holds");
  data->footer(kDataFooter);
  data->require_subcommand(1);
  AddBuild(*data, chosen);
  AddShow(*data, chosen);
}

}  // namespace adaptive_train
