// The outcome of an operation that may fail in an expected way: a value, or one line that says why
// not.
#pragma once

#include <string>
#include <tl/expected.hpp>
#include <utility>

#include "core/exit_code.h"

namespace adaptive_train {

/// Why an operation failed. `message` is one line: what was wrong, where, what is allowed or what
/// to do. `exit_code` is the program's exit code if nobody handles the error. `system_error` is the
/// errno of a system call that refused, for those who tell kinds of failure apart; 0: none.
struct Error {
  std::string message;
  ExitCode exit_code = ExitCode::kUsage;
  int system_error = 0;
};

/// A value or an Error. Copyable where T is; no threads, no allocation beyond T's and the
/// message's.
template <class T>
using Result = tl::expected<T, Error>;

/// Creates the failing side of a Result.
inline tl::unexpected<Error> Fail(std::string message, ExitCode code = ExitCode::kUsage,
                                  int system_error = 0) {
  return tl::unexpected<Error>(Error{std::move(message), code, system_error});
}

/// Prefixes a message with its place: "PATH: message".
inline tl::unexpected<Error> FailIn(const std::string& where, Error error) {
  error.message = where + ": " + error.message;
  return tl::unexpected<Error>(std::move(error));
}

}  // namespace adaptive_train
