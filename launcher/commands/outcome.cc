#include "launcher/commands/outcome.h"

#include <fmt/format.h>

#include <cerrno>
#include <cstdio>
#include <cstring>

namespace adaptive_train {

int ReportError(std::string_view verb, const Error& error) {
  fmt::print(stderr, "adaptive-train {}: {}\n", verb, error.message);
  return ToInt(error.exit_code);
}

int PrintText(std::string_view verb, const std::string& text) {
  if (std::fputs(text.c_str(), stdout) >= 0 && std::fflush(stdout) == 0)
    return ToInt(ExitCode::kDone);
  return ReportError(
      verb, Error{fmt::format("cannot write to standard output: {}", std::strerror(errno))});
}

}  // namespace adaptive_train
