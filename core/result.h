// The outcome of an operation that may fail in an expected way: a value, or one line that says why
// not.
#pragma once

#include <string>
#include <tl/expected.hpp>
#include <utility>

#include "core/exit_code.h"

namespace adaptive_train {

/// Why an operation failed. `message` is one line: what was wrong, where, what is allowed or what
/// to do. `exit_code` is the program's exit code if nobody handles the error.
struct Error {
  std::string message;
  ExitCode exit_code = ExitCode::kUsage;
};

/// A value or an Error. Copyable where T is; no threads, no allocation beyond T's and the
/// message's.
template <class T>
using Result = tl::expected<T, Error>;

/// Creates the failing side of a Result.
inline tl::unexpected<Error> Fail(std::string message, ExitCode code = ExitCode::kUsage) {
  return tl::unexpected<Error>(Error{std::move(message), code});
}

/// Prefixes a message with its place: "PATH: message".
inline tl::unexpected<Error> FailIn(const std::string& where, Error error) {
  error.message = where + ": " + error.message;
  return tl::unexpected<Error>(std::move(error));
}

}  // namespace adaptive_train
