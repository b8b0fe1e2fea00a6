// Writes JSON in one pass: no document is built first.
//
// WriteJson(to, value) appends a value to a text. A type of ours has an overload of its own beside
// its reader, mostly a JsonObject:
//
//   void WriteJson(std::string& to, const Point& point) {
//     JsonObject(to).Add("x", point.x).Add("y", point.y);
//   }
#pragma once

#include <charconv>
#include <cmath>
#include <concepts>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace adaptive_train {

/// In quotes. What is no UTF-8 becomes U+FFFD.
void WriteJson(std::string& to, std::string_view text);
inline void WriteJson(std::string& to, const std::string& text) {
  WriteJson(to, std::string_view(text));
}
inline void WriteJson(std::string& to, const char* text) { WriteJson(to, std::string_view(text)); }
inline void WriteJson(std::string& to, std::nullptr_t) { to += "null"; }
inline void WriteJson(std::string& to, bool value) { to += value ? "true" : "false"; }

template <class Number>
requires(std::integral<Number> || std::floating_point<Number>) &&
    (!std::same_as<Number, bool>)void WriteJson(std::string& to, Number value) {
  if constexpr (std::floating_point<Number>) {
    // JSON has no word for them.
    if (!std::isfinite(value)) return WriteJson(to, nullptr);
  }
  char digits[32];
  // The shortest text that reads back as the same number.
  to.append(digits, std::to_chars(digits, digits + sizeof digits, value).ptr);
}

template <class T>
void WriteJson(std::string& to, const std::optional<T>& value) {
  if (value) return WriteJson(to, *value);
  WriteJson(to, nullptr);
}

template <class T>
void WriteJson(std::string& to, const std::vector<T>& values) {
  const char* before = "";
  to += '[';
  for (const T& value : values) {
    to += before;
    WriteJson(to, value);
    before = ",";
  }
  to += ']';
}

/// The members of an object, in the order in which they are added. It ends with its writer, which
/// must not outlive `to`; nothing else is appended meanwhile.
class JsonObject {
 public:
  explicit JsonObject(std::string& to) : to_(to) { to_ += '{'; }
  ~JsonObject() { to_ += '}'; }
  JsonObject(const JsonObject&) = delete;
  JsonObject& operator=(const JsonObject&) = delete;

  template <class T>
  JsonObject& Add(std::string_view key, const T& value) {
    if (to_.back() != '{') to_ += ',';
    WriteJson(to_, key);
    to_ += ':';
    WriteJson(to_, value);
    return *this;
  }

 private:
  std::string& to_;
};

/// A value as text of its own.
template <class T>
std::string JsonOf(const T& value) {
  std::string text;
  WriteJson(text, value);
  return text;
}

/// JSON text that this program has written, with a line for each value, for people.
std::string Indented(const std::string& json, int spaces);

}  // namespace adaptive_train
