// Reads members of untrusted JSON objects. For .cc files.
#pragma once

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <string_view>
#include <vector>

#include "core/json.h"

namespace adaptive_train {

inline constexpr std::size_t kMaxJsonEntries = 4096;
inline constexpr std::size_t kMaxJsonText = 1024;
inline constexpr char kJsonTextRule[] =
    "not a string of at most 1024 bytes without control characters";

inline bool IsJsonText(const nlohmann::json& json) {
  if (!json.is_string()) return false;
  const auto& text = json.get_ref<const std::string&>();
  const auto is_control = [](char c) { return static_cast<unsigned char>(c) < 0x20 || c == 0x7f; };
  return text.size() <= kMaxJsonText && std::none_of(text.begin(), text.end(), is_control);
}

/// Reads members of an untrusted object. The first member that is missing or wrong sets `error`,
/// and nothing more is read after that. A caller therefore checks once, at the end.
class JsonReader {
 public:
  JsonReader(const nlohmann::json& object, std::string where, std::string& error)
      : object_(object), where_(std::move(where)), error_(error) {
    if (error_.empty() && !object_.is_object())
      error_ = (where_.empty() ? "the document" : where_) + ": not an object";
  }

  void Read(const char* key, std::string& out) const {
    const nlohmann::json* member = Find(key);
    if (member == nullptr) return;
    if (!IsJsonText(*member)) return Refuse(key, kJsonTextRule);
    out = member->get<std::string>();
  }

  /// A string of any length with any characters, such as a whole file's text.
  void ReadAnyText(const char* key, std::string& out) const {
    const nlohmann::json* member = Find(key);
    if (member == nullptr) return;
    if (!member->is_string()) return Refuse(key, "not a string");
    out = member->get<std::string>();
  }

  template <class Integer>
  void Read(const char* key, Integer& out, std::int64_t smallest, std::int64_t largest) const {
    const nlohmann::json* member = Find(key);
    if (member == nullptr) return;
    // get() would silently truncate a float or a number beyond 64 bits.
    const bool fits =
        member->is_number_integer() &&
        !(member->is_number_unsigned() &&
          member->get<std::uint64_t>() > std::uint64_t{std::numeric_limits<std::int64_t>::max()});
    const std::int64_t value = fits ? member->get<std::int64_t>() : 0;
    if (!fits || value < smallest || value > largest)
      return Refuse(key, fmt::format("not a whole number from {} to {}", smallest, largest));
    out = static_cast<Integer>(value);
  }

  /// A finite number that is 0 or more, or above 0.
  void ReadNumber(const char* key, double& out, bool zero_allowed = true) const {
    const nlohmann::json* member = Find(key);
    if (member == nullptr) return;
    const double value = member->is_number() ? member->get<double>() : -1;
    if (!std::isfinite(value) || value < 0 || (value == 0 && !zero_allowed))
      return Refuse(key, zero_allowed ? "not a number from 0 up" : "not a number above 0");
    out = value;
  }

  /// A finite number, negative ones too.
  void ReadReal(const char* key, double& out) const {
    const nlohmann::json* member = Find(key);
    if (member == nullptr) return;
    if (!member->is_number()) return Refuse(key, "not a number");
    out = member->get<double>();
  }

  void Read(const char* key, bool& out) const {
    const nlohmann::json* member = Find(key);
    if (member == nullptr) return;
    if (!member->is_boolean()) return Refuse(key, "neither true nor false");
    out = member->get<bool>();
  }

  /// The member, or nullptr if it is null or something is wrong (then `error` says what).
  const nlohmann::json* FindOptional(const char* key) const {
    const nlohmann::json* member = Find(key);
    return member == nullptr || member->is_null() ? nullptr : member;
  }

  /// Calls read_entry(entry reader) for each entry of a list of objects.
  template <class ReadEntry>
  void ReadList(const char* key, ReadEntry read_entry, std::size_t most = kMaxJsonEntries) const {
    const nlohmann::json* list = Find(key);
    if (list == nullptr) return;
    if (!list->is_array() || list->size() > most)
      return Refuse(key, fmt::format("not a list of at most {} entries", most));
    for (std::size_t i = 0; i < list->size() && error_.empty(); ++i) {
      read_entry(JsonReader((*list)[i], fmt::format("{}{}[{}]", Place(), key, i), error_));
    }
  }

  void ReadTexts(const char* key, std::vector<std::string>& out) const {
    const nlohmann::json* list = Find(key);
    if (list == nullptr) return;
    if (!list->is_array() || list->size() > kMaxJsonEntries)
      return Refuse(key, fmt::format("not a list of at most {} strings", kMaxJsonEntries));
    for (const nlohmann::json& entry : *list) {
      if (!IsJsonText(entry)) return Refuse(key, kJsonTextRule);
      out.push_back(entry.get<std::string>());
    }
  }

  /// Strings of any length with any characters, such as paths.
  void ReadAnyTexts(const char* key, std::vector<std::string>& out) const {
    const nlohmann::json* list = Find(key);
    if (list == nullptr) return;
    if (!list->is_array()) return Refuse(key, "not a list of strings");
    for (const nlohmann::json& entry : *list) {
      if (!entry.is_string()) return Refuse(key, "not a list of strings");
      out.push_back(entry.get<std::string>());
    }
  }

  bool Good() const { return error_.empty(); }
  bool Has(const char* key) const { return object_.contains(key); }

  /// Reports an error in a member, unless there was an earlier error.
  void Refuse(const char* key, std::string_view what) const {
    if (error_.empty()) error_ = fmt::format("{}{}: {}", Place(), key, what);
  }

  void ReadIntegers(const char* key, std::vector<int>& out, std::int64_t smallest,
                    std::int64_t largest) const {
    const nlohmann::json* list = Find(key);
    if (list == nullptr) return;
    if (!list->is_array()) return Refuse(key, "not a list");
    for (const nlohmann::json& entry : *list) {
      const bool fits = entry.is_number_integer() && entry >= smallest && entry <= largest;
      if (!fits)
        return Refuse(key, fmt::format("not whole numbers from {} to {}", smallest, largest));
      out.push_back(entry.get<int>());
    }
  }

  JsonReader Part(const char* key) const {
    static const nlohmann::json kNothing = nlohmann::json::object();
    const nlohmann::json* part = Find(key);
    return JsonReader(part != nullptr ? *part : kNothing, where_.empty() ? key : where_ + "." + key,
                      error_);
  }

 private:
  const nlohmann::json* Find(const char* key) const {
    if (!error_.empty()) return nullptr;
    const auto member = object_.find(key);
    if (member != object_.end()) return &*member;
    Refuse(key, "missing");
    return nullptr;
  }

  std::string Place() const { return where_.empty() ? "" : where_ + "."; }

  const nlohmann::json& object_;
  std::string where_;
  std::string& error_;
};

}  // namespace adaptive_train
