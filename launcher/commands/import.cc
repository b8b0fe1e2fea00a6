#include "launcher/commands/import.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>

#include "core/config.h"
#include "core/file_io.h"
#include "core/format_version.h"
#include "launcher/commands/outcome.h"
#include "runtime/checkpoint/hf_checkpoint.h"

namespace adaptive_train {
namespace {

constexpr const char* kImportFooter =
    R"(Reads config.json and model.safetensors, or the shards of model.safetensors.index.json, of a gpt2,
llama, mistral, qwen2 or bert model; writes DIR/step-00000000, a checkpoint, and DIR/config.toml, whose
[model] section is filled in and whose checkpoint.start names it. Name data.train there before you run it.

Examples:
  adaptive-train import --hf my-model --output start
  adaptive-train import --hf my-model --output start --sequence 1024
  adaptive-train run start/config.toml --data.train=corpus.bin --optimizer.lr=1e-5)";

struct ImportArguments {
  std::string hf;
  std::string output;
  std::optional<std::int64_t> sequence;
  bool json = false;
};

/// The defaults, except for the model and its starting checkpoint.
Config ConfigOf(const ImportedCheckpoint& imported) {
  Config config;
  config.model = ConfigOf(imported.dims);
  config.data.train = "corpus.txt";
  config.checkpoint.start = std::filesystem::path(imported.path).filename().string();
  return config;
}

Result<ImportedCheckpoint> Import(const ImportArguments& arguments) {
  const std::string config_path = arguments.output + "/config.toml";
  std::error_code ignored;
  if (std::filesystem::exists(config_path, ignored)) {
    return Fail(fmt::format("{}: there already; name another folder", config_path));
  }
  auto imported = ImportCheckpoint(arguments.hf, arguments.sequence, arguments.output);
  if (!imported) return imported;
  auto written = WriteFile(config_path, ToToml(ConfigOf(*imported)));
  if (!written) {
    // The same command then works once there is room.
    std::filesystem::remove_all(imported->path, ignored);
    return tl::unexpected(written.error());
  }
  return imported;
}

void Print(const ImportArguments& arguments, const ImportedCheckpoint& imported) {
  const std::string config = arguments.output + "/config.toml";
  if (arguments.json) {
    const nlohmann::ordered_json json{{"format_version", kFormatVersion},
                                      {"checkpoint", imported.path},
                                      {"config", config},
                                      {"kind", ToString(imported.dims.kind)},
                                      {"parameters", imported.parameters},
                                      {"notes", imported.notes}};
    fmt::print("{}\n", json.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace));
    return;
  }
  fmt::print("model       {}, {} parameters\n", ToString(imported.dims.kind), imported.parameters);
  for (const std::string& note : imported.notes) fmt::print("left out    {}\n", note);
  fmt::print("checkpoint  {}\n", imported.path);
  fmt::print("next        name data.train in {}, then: adaptive-train run {}\n", config, config);
}

int RunImportCommand(const ImportArguments& arguments) {
  auto imported = Import(arguments);
  if (!imported) {
    return ReportError("import", imported.error());
  }
  Print(arguments, *imported);
  return 0;
}

}  // namespace

void AddImportCommand(CLI::App& app, std::function<int()>& chosen) {
  auto arguments = std::make_shared<ImportArguments>();
  CLI::App* verb =
      app.add_subcommand("import", "Make a checkpoint of a model of Hugging Face's transformers");
  verb->footer(kImportFooter);
  verb->add_option("--hf", arguments->hf, "Folder with config.json and safetensors")
      ->required()
      ->type_name("DIR");
  verb->add_option("--output", arguments->output, "Folder for the checkpoint and config.toml")
      ->required()
      ->type_name("DIR");
  verb->add_option("--sequence", arguments->sequence,
                   "Tokens per sample, at most the model's positions (default: all of them)")
      ->type_name("N");
  verb->add_flag("--json", arguments->json, "One JSON document instead of lines for people");
  verb->callback(
      [arguments, &chosen] { chosen = [arguments] { return RunImportCommand(*arguments); }; });
}

}  // namespace adaptive_train
