// How a command ends: with its text on standard output, or with one line of error.
#pragma once

#include <string>
#include <string_view>

#include "core/result.h"

namespace adaptive_train {

/// Prints the error on stderr as one line that names the verb. Returns the exit code.
int ReportError(std::string_view verb, const Error& error);

/// Writes the text to standard output and flushes. Returns the exit code, of an error that it has
/// reported if not all could be written.
int PrintText(std::string_view verb, const std::string& text);

}  // namespace adaptive_train
