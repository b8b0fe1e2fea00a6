// What manifest and shard indices have in common as JSON. For .cc files of this room.
#pragma once

#include <fmt/format.h>

#include <charconv>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "core/file_io.h"
#include "core/json.h"
#include "core/result.h"
#include "runtime/checkpoint/checkpoint_format.h"

namespace adaptive_train::checkpoint_json {

/// A fault in the content of an otherwise well-formed document; becomes a Result's error.
struct BadContent {
  std::string why;
};

inline std::int64_t CountFrom(const nlohmann::json& value, std::string_view what) {
  if (!value.is_number_unsigned() ||
      value.get<std::uint64_t>() >= std::uint64_t{kMaxCheckpointCount})
    throw BadContent{fmt::format("{} is not a count", what)};
  return value.get<std::int64_t>();
}

inline std::int64_t CountAt(const nlohmann::json& object, const char* key) {
  return CountFrom(object.at(key), key);
}

inline std::uint64_t HashFrom(const nlohmann::json& value) {
  const auto& text = value.get_ref<const std::string&>();
  std::uint64_t hash = 0;
  const auto [last, error] = std::from_chars(text.data(), text.data() + text.size(), hash, 16);
  if (error != std::errc() || last != text.data() + text.size() || text.size() != 16)
    throw BadContent{fmt::format("\"{}\" is not a hash", Printable(text))};
  return hash;
}

inline std::string HashText(std::uint64_t hash) { return fmt::format("{:016x}", hash); }

/// The version of a document, if it is one that is read.
inline int VersionOf(const nlohmann::json& document) {
  const nlohmann::json& version = document.at("format_version");
  for (int known = kOldestCheckpointFormatVersion; known <= kCheckpointFormatVersion; ++known)
    if (version == known) return known;
  throw BadContent{fmt::format("format_version {} is not one that this program reads ({} to {})",
                               InWords(version), kOldestCheckpointFormatVersion,
                               kCheckpointFormatVersion)};
}

/// Parses `text`, checks the version and lets `read` make a T of document and version.
template <class T, class Read>
Result<T> Parse(std::string_view text, const std::string& what, Read read) {
  try {
    const auto document = nlohmann::json::parse(text);
    if (!document.is_object()) throw BadContent{"not a JSON object"};
    return read(document, VersionOf(document));
  } catch (const nlohmann::json::exception& error) {
    return Fail(what + ": " + InWords(error), ExitCode::kRankFailure);
  } catch (const BadContent& error) {
    return Fail(what + ": " + error.why, ExitCode::kRankFailure);
  }
}

}  // namespace adaptive_train::checkpoint_json
