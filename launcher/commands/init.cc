#include "launcher/commands/init.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <memory>
#include <string>

#include "core/exit_code.h"
#include "core/result.h"
#include "launcher/commands/every_key.h"
#include "launcher/commands/outcome.h"

namespace adaptive_train {
namespace {

constexpr const char* kInitFooter =
    R"(Writes every key of a configuration with its type, unit and default, as in a small example that
trains on bytes. Set data.train, and delete what should keep its default. A file that exists is left
as it is.

Examples:
  adaptive-train init
  adaptive-train init small.toml

Exit codes: 0 done, 2 usage, or the file exists or cannot be written.)";

/// Replaces the example's file name in its comments by the new file's.
std::string TextFor(const std::string& path) {
  constexpr std::string_view kExample = "quickstart.toml";
  std::string text(EveryKeyToml());
  const std::string name = std::filesystem::path(path).filename().string();
  for (auto at = text.find(kExample); at != std::string::npos;
       at = text.find(kExample, at + name.size()))
    text.replace(at, kExample.size(), name);
  return text;
}

Result<void> WriteNew(const std::string& path) {
  std::FILE* file = std::fopen(path.c_str(), "wxe");  // x: never overwrites
  if (file == nullptr && errno == EEXIST)
    return Fail(path + ": it exists and is left as it is: name another file");
  if (file == nullptr) return Fail(path + ": " + std::strerror(errno));
  const std::string text = TextFor(path);
  const bool written = std::fwrite(text.data(), 1, text.size(), file) == text.size();
  const bool closed = std::fclose(file) == 0;
  if (written && closed) return {};
  const std::string why = std::strerror(errno);
  std::error_code ignored;
  std::filesystem::remove(path, ignored);
  return Fail(path + ": " + why);
}

}  // namespace

void AddInitCommand(CLI::App& app, std::function<int()>& chosen) {
  auto path = std::make_shared<std::string>("config.toml");
  CLI::App* init = app.add_subcommand("init", "Write a commented configuration with every key");
  init->footer(kInitFooter);
  init->add_option("file", *path, "The file to write (default: config.toml)")->type_name("FILE");
  init->callback([path, &chosen] {
    chosen = [path] {
      auto written = WriteNew(*path);
      if (written) {
        fmt::print("{}: set data.train, then: adaptive-train run {}\n", *path, *path);
        return ToInt(ExitCode::kDone);
      }
      return ReportError("init", written.error());
    };
  });
}

}  // namespace adaptive_train
