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

/// Parses `text`, checks format_version and calls `read` for the members; `what` names the
/// document.
template <class T, class Read>
Result<T> ReadJson(std::string_view text, const char* what, Read read) {
  try {
    const auto json = nlohmann::json::parse(text);
    if (!json.is_object()) return Fail(fmt::format("{}: not a JSON object", what));
    const auto version = json.at("format_version").template get<std::int64_t>();
    if (version < 1 || version > kFormatVersion) {
      return Fail(fmt::format("{}: format_version {} is not one that this program reads (1 to {})",
                              what, version, kFormatVersion));
    }
    return read(json);
  } catch (const nlohmann::json::exception& error) {
    return Fail(fmt::format("{}: {}", what, Printable(error.what())));
  }
}

}  // namespace adaptive_train
