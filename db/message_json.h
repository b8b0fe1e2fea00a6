// Parses the texts of messages between a client and adaptive-traind. For .cc files.
#pragma once

#include <stdexcept>

#include "db/record_json.h"

namespace adaptive_train {

/// Messages are flat. A hostile text can ask for much more memory than it is long: "[[[[" does.
inline constexpr int kMaxMessageDepth = 32;
inline constexpr std::size_t kMaxMessageValues = std::size_t{1} << 21;

/// Throws nlohmann::json::exception, and std::length_error where it is deeper or larger.
inline nlohmann::json ParseBounded(std::string_view text) {
  std::size_t values = 0;
  const auto bound = [&values](int depth, nlohmann::json::parse_event_t event, nlohmann::json&) {
    using Event = nlohmann::json::parse_event_t;
    values += event == Event::value || event == Event::object_start || event == Event::array_start;
    if (depth > kMaxMessageDepth) throw std::length_error("nested too deeply");
    if (values > kMaxMessageValues) throw std::length_error("too many values");
    return true;
  };
  return nlohmann::json::parse(text, bound);
}

/// Parses untrusted text and lets `read` take what it needs. `what` names the message in errors.
template <class T, class Read>
Result<T> ReadMessage(std::string_view text, const char* what, Read read) {
  try {
    const auto json = ParseBounded(text);
    std::string error;
    T message = read(JsonReader(json, "", error));
    if (error.empty()) return message;
    return Fail(fmt::format("{}: {}", what, error), ExitCode::kStore);
  } catch (const nlohmann::json::exception& error) {
    return Fail(fmt::format("{}: {}", what, InWords(error)), ExitCode::kStore);
  } catch (const std::length_error& error) {
    return Fail(fmt::format("{}: {}", what, error.what()), ExitCode::kStore);
  }
}

}  // namespace adaptive_train
