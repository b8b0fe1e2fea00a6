// Reads untrusted JSON: turns every failure of the library into a one-line error. For .cc files of
// rooms that use JSON.
#pragma once

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "core/file_io.h"
#include "core/format_version.h"
#include "core/result.h"

namespace adaptive_train {

/// A value in words. Containers are not printed: their text is made recursively, as deep as they
/// are nested.
inline std::string InWords(const nlohmann::json& value) {
  return value.is_structured() ? std::string("an ") + value.type_name()
                               : Printable(value.dump(), 60);
}

/// What the library says, without its own name for it: "parse error at line 1, column 9: ...".
inline std::string InWords(const nlohmann::json::exception& error) {
  std::string_view words = error.what();
  if (words.starts_with("[json.exception.")) words.remove_prefix(words.find("] ") + 2);
  const bool syntax = dynamic_cast<const nlohmann::json::parse_error*>(&error) != nullptr;
  return (syntax ? "not JSON: " : "") + Printable(words);
}

/// Parses `text`, checks format_version and lets `read` take what it needs; `what` names the
/// document.
template <class T, class Read>
Result<T> ReadJson(std::string_view text, const char* what, Read read) {
  try {
    const auto json = nlohmann::json::parse(text);
    if (!json.is_object()) return Fail(fmt::format("{}: not a JSON object", what));
    const auto version = json.find("format_version");
    if (version == json.end()) return Fail(fmt::format("{}: format_version: missing", what));
    if (!version->is_number_integer() || *version < 1 || *version > kFormatVersion) {
      return Fail(fmt::format("{}: format_version {} is not one that this program reads (1 to {})",
                              what, InWords(*version), kFormatVersion));
    }
    return read(json);
  } catch (const nlohmann::json::exception& error) {
    return Fail(fmt::format("{}: {}", what, InWords(error)));
  }
}

}  // namespace adaptive_train
