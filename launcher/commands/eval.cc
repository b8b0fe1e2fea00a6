#include "launcher/commands/eval.h"

#include "launcher/commands/outcome.h"
#include "launcher/report/step_table.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <chrono>
#include <memory>
#include <thread>

#include "core/evaluation.h"
#include "core/exit_code.h"
#include "core/file_io.h"
#include "launcher/commands/saved_model.h"
#include "launcher/steps/child_process.h"
#include "launcher/steps/programs.h"

namespace adaptive_train {
namespace {

constexpr std::chrono::milliseconds kPollPeriod{20};
constexpr std::size_t kMaxAnswerBytes = 1 << 16;

constexpr const char* kEvalFooter = R"(Examples:
  adaptive-train eval runs/1234 --data other.txt
  adaptive-train eval runs/1234/checkpoints/step-00000120 --data other.bin --json
  adaptive-train eval runs/1234 --data other.txt --samples 100 --threads 2)";

struct EvalOptions {
  std::string model, config;
  EvaluationRequest request;
  bool json = false;
};

/// The worker's answer, or its error line. Ctrl-C ends the worker with us.
Result<std::string> RunWorker(const std::string& worker, const EvaluationRequest& request) {
  ChildProcess::Options options;
  options.command = {worker, "evaluate", ToJson(request)};
  auto child = ChildProcess::Start(options);
  if (!child) return tl::unexpected(child.error());
  std::string output, errors;
  std::optional<int> status;
  while (!status) {
    std::this_thread::sleep_for(kPollPeriod);
    status = child->Poll();
    output += child->ReadOutput();
    errors += child->ReadErrors();
    if (output.size() > kMaxAnswerBytes || errors.size() > kMaxAnswerBytes)
      return Fail("the worker's answer is too long");
  }
  if (*status == 0) return output;
  while (!errors.empty() && errors.back() == '\n') errors.pop_back();
  if (errors.empty()) errors = "the worker ended with " + DescribeExit(*status);
  return Fail(errors, ExitCode::kPreflight);
}

int RunEval(EvalOptions options) {
  auto model = FindSavedModel(options.model, options.config);
  if (!model) {
    Error error = model.error();
    // All unreadable input has one exit code, whether checkpoint or text.
    if (error.exit_code == ExitCode::kRankFailure) error.exit_code = ExitCode::kPreflight;
    return ReportError("eval", error);
  }
  for (const std::string& line : model->refused)
    fmt::print(stderr, "adaptive-train eval: refused: {}\n", line);
  auto programs = FindPrograms();
  if (!programs) return ReportError("eval", programs.error());
  EvaluationRequest& request = options.request;
  request.dims = DimsOf(model->config.model);
  request.text_vocab = TextVocab(model->config.model);
  request.checkpoint = model->checkpoint;
  request.seed = model->config.train.seed;
  auto answer = RunWorker(programs->worker, request);
  if (!answer) return ReportError("eval", answer.error());
  auto evaluation = EvaluationFromJson(*answer);
  if (!evaluation) return ReportError("eval", evaluation.error());
  if (options.json) {
    fmt::print("{}\n", ToJson(*evaluation));
    return 0;
  }
  const Evaluation& e = *evaluation;
  fmt::print("checkpoint  {}\ndata        {}: {}\n", request.checkpoint, request.data, e.data);
  fmt::print(
      "loss        {:.4f} nats per token over {} tokens in {} samples (unigram entropy of the "
      "text: {:.4f})\n",
      e.loss, e.targets, e.samples, e.unigram_entropy);
  fmt::print("perplexity  {}\ncomputed    {:.1f} s, {:.0f} tokens/s, {}\n", ShownPerplexity(e.loss),
             e.seconds, static_cast<double>(e.samples * request.dims.sequence) / e.seconds,
             e.device);
  return 0;
}

}  // namespace

void AddEvalCommand(CLI::App& app, std::function<int()>& chosen) {
  auto options = std::make_shared<EvalOptions>();
  EvaluationRequest& r = options->request;
  CLI::App* verb = app.add_subcommand("eval", "Loss and perplexity of a saved model on a text");
  verb->footer(kEvalFooter);
  verb->add_option("MODEL", options->model,
                   "A run's folder, a folder of checkpoints, or a checkpoint")
      ->required();
  verb->add_option("--data", r.data, "The text, as data.train names one")->required();
  verb->add_option("--format", r.format, "auto, megatron, llmc, uint16 or bytes, see data.format")
      ->capture_default_str();
  verb->add_option("--config", options->config,
                   "The model's configuration, where none is beside it");
  verb->add_option("--samples", r.samples, "Samples from the beginning of the text; 0 = all")
      ->check(CLI::NonNegativeNumber)
      ->capture_default_str();
  verb->add_option("--batch", r.batch, "Samples at a time")
      ->check(CLI::Range(1, 4096))
      ->capture_default_str();
  verb->add_option("--threads", r.threads, "CPU threads")
      ->check(CLI::Range(1, 4096))
      ->capture_default_str();
  verb->add_flag("--json", options->json, "A JSON object instead of lines for people");
  verb->callback([options, &chosen] { chosen = [options] { return RunEval(*options); }; });
}

}  // namespace adaptive_train
