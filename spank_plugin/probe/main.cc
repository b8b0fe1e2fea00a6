// adaptive-train-probe: prints this node's snapshot, one JSON document per line. The first line,
// flushed before GPUs are touched, has all but the GPUs; the second has everything. A reader keeps
// the last complete line.
#include <unistd.h>

#include <cstdio>
#include <cstring>
#include <exception>
#include <string>
#include <string_view>

#include "core/file_io.h"
#include "spank_plugin/probe/node_probe.h"

namespace {

constexpr char kUsage[] =
    "usage: adaptive-train-probe [--help | --version]\n"
    "Prints a picture of this node as JSON, one document a line; the last line is the complete "
    "one.\n"
    "`adaptive-train probe` shows the same to people.\n";

/// Writes a document and its line end, unbuffered. If the reader is gone, SIGPIPE ends the program.
bool Print(const adaptive_train::Node& node) {
  const std::string text = adaptive_train::ToJson(node) + "\n";
  for (std::size_t written = 0; written < text.size();) {
    const ssize_t n = ::write(STDOUT_FILENO, text.data() + written, text.size() - written);
    if (n < 0) {
      std::fprintf(stderr, "adaptive-train-probe: standard output: %s\n", std::strerror(errno));
      return false;
    }
    written += static_cast<std::size_t>(n);
  }
  return true;
}

int Run() {
  bool printed = true;
  const adaptive_train::Node node = adaptive_train::probe::TakeSnapshot(
      [&](const adaptive_train::Node& cpu_part) { printed = Print(cpu_part); });
  return printed && Print(node) ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
  const std::string_view argument = argc > 1 ? argv[1] : "";
  if (argc == 2 && argument == "--version")
    return std::printf("adaptive-train-probe %s\n", ADAPTIVE_TRAIN_VERSION) > 0 ? 0 : 1;
  if (argc == 2 && argument == "--help") return std::fputs(kUsage, stdout) >= 0 ? 0 : 1;
  if (argc > 1) {
    const std::string shown = adaptive_train::Printable(argc > 2 ? argv[2] : argument, 60);
    std::fprintf(
        stderr,
        "adaptive-train-probe: unknown argument '%s'; allowed: --help or --version, alone\n",
        shown.c_str());
    return 2;
  }
  try {
    return Run();
  } catch (const std::exception& error) {
    std::fprintf(stderr, "adaptive-train-probe: %s\n", error.what());
    return 1;
  }
}
