#include "launcher/commands/export.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>

#include "core/format_version.h"
#include "core/model_shape.h"
#include "launcher/commands/outcome.h"
#include "launcher/commands/saved_model.h"
#include "runtime/checkpoint/hf_checkpoint.h"

namespace adaptive_train {
namespace {

constexpr const char* kExportFooter =
    R"(Writes model.safetensors and config.json with the names of GPT2LMHeadModel, BertForMaskedLM or,
of kind = llama, LlamaForCausalLM, MistralForCausalLM (with a sliding window) or Qwen2ForCausalLM (with
biases of queries, keys and values alone). Of a run's folder the newest checkpoint that holds is taken. A sentencepiece model that `data
build` put beside the training data goes along as tokenizer.model.

Examples:
  adaptive-train export runs/1234 --hf my-model
  adaptive-train export runs/1234/checkpoints/step-00000500 --hf my-model
  python3 -c 'from transformers import AutoModel; AutoModel.from_pretrained("my-model")')";

struct ExportArguments {
  std::string path;
  std::string config;
  std::string hf;
  bool json = false;
};

struct Exported {
  SavedModel model;
  std::int64_t step = 0;
  std::optional<std::string> tokenizer;  // where it came from
};

/// The tokenizer that `data build PREFIX` leaves beside PREFIX.bin.
std::optional<std::string> TokenizerOf(const DataConfig& data) {
  std::filesystem::path path = data.train;
  if (path.extension() == ".bin" || path.extension() == ".idx") path.replace_extension();
  path += ".model";
  std::error_code ignored;
  if (!std::filesystem::is_regular_file(path, ignored)) return std::nullopt;
  return path.string();
}

Result<Exported> Export(const ExportArguments& arguments) {
  auto model = FindSavedModel(arguments.path, arguments.config);
  if (!model) return tl::unexpected(model.error());
  for (const std::string& line : model->refused)
    fmt::print(stderr, "adaptive-train export: refused: {}\n", line);
  auto step = ExportCheckpoint(model->checkpoint, DimsOf(model->config.model), arguments.hf);
  if (!step) return tl::unexpected(step.error());
  auto tokenizer = TokenizerOf(model->config.data);
  if (tokenizer) {
    std::error_code error;
    std::filesystem::copy_file(*tokenizer, arguments.hf + "/tokenizer.model", error);
    if (error) {
      return Fail(fmt::format("{}/tokenizer.model: {}; the model itself is there", arguments.hf,
                              error.message()),
                  ExitCode::kPreflight);
    }
  }
  return Exported{std::move(*model), *step, std::move(tokenizer)};
}

void Print(const ExportArguments& arguments, const Exported& exported) {
  const ModelDims dims = DimsOf(exported.model.config.model);
  const std::int64_t parameters = ModelShape::Of(dims).total.parameters;
  if (arguments.json) {
    nlohmann::ordered_json json{{"format_version", kFormatVersion},
                                {"checkpoint", exported.model.checkpoint},
                                {"step", exported.step},
                                {"kind", exported.model.config.model.kind},
                                {"parameters", parameters},
                                {"hf", arguments.hf},
                                {"tokenizer", nullptr}};
    if (exported.tokenizer) json["tokenizer"] = *exported.tokenizer;
    fmt::print("{}\n", json.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace));
    return;
  }
  fmt::print("checkpoint  {} (step {})\n", exported.model.checkpoint, exported.step);
  fmt::print("model       {}, {} parameters\n", exported.model.config.model.kind, parameters);
  if (exported.tokenizer) fmt::print("tokenizer   {}\n", *exported.tokenizer);
  fmt::print("written     {}\n", arguments.hf);
}

int RunExportCommand(const ExportArguments& arguments) {
  auto exported = Export(arguments);
  if (!exported) {
    return ReportError("export", exported.error());
  }
  Print(arguments, *exported);
  return 0;
}

}  // namespace

void AddExportCommand(CLI::App& app, std::function<int()>& chosen) {
  auto arguments = std::make_shared<ExportArguments>();
  CLI::App* verb =
      app.add_subcommand("export", "Write a trained model as Hugging Face's transformers reads it");
  verb->footer(kExportFooter);
  verb->add_option("path", arguments->path, "A checkpoint, or a run's folder")
      ->required()
      ->type_name("CHECKPOINT_OR_RUN_DIR");
  verb->add_option("--hf", arguments->hf, "Folder to write to; must not hold a model yet")
      ->required()
      ->type_name("DIR");
  verb->add_option("--config", arguments->config,
                   "The run's configuration, if it is not beside the checkpoint")
      ->type_name("FILE");
  verb->add_flag("--json", arguments->json, "One JSON document instead of lines for people");
  verb->callback(
      [arguments, &chosen] { chosen = [arguments] { return RunExportCommand(*arguments); }; });
}

}  // namespace adaptive_train
