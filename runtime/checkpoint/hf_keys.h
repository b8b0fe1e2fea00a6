// Keys of a Hugging Face config.json, read one by one.
#pragma once

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cmath>
#include <cstdint>
#include <initializer_list>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>

#include "core/file_io.h"
#include "core/json.h"

namespace adaptive_train {

/// Takes keys from a config.json and keeps the first thing that is wrong.
class HfKeys {
 public:
  /// `json` is an object that outlives this.
  explicit HfKeys(const nlohmann::json& json) : json_(json) {}

  const std::optional<std::string>& error() const { return error_; }

  /// A whole number; without the key, or where it is null, `absent`, or an error if there is none.
  std::int64_t Integer(const char* key, std::optional<std::int64_t> absent = std::nullopt) {
    const nlohmann::json* value = Find(key);
    if (value == nullptr && absent) return *absent;
    if (value != nullptr && value->is_number_integer()) return value->get<std::int64_t>();
    Wrong(key, value, "a whole number");
    return 0;
  }

  /// A number; without the key, or where it is null, `absent`, or an error if there is none.
  double Number(const char* key, std::optional<double> absent = std::nullopt) {
    const nlohmann::json* value = Find(key);
    if (value == nullptr && absent) return *absent;
    if (value != nullptr && value->is_number()) return value->get<double>();
    Wrong(key, value, "a number");
    return 0;
  }

  bool Flag(const char* key, bool absent) {
    const nlohmann::json* value = Find(key);
    if (value == nullptr) return absent;
    if (!value->is_boolean()) Wrong(key, value, "true or false");
    return value->is_boolean() && value->get<bool>();
  }

  /// The flag must be `allowed`, which is also its meaning where the key is missing.
  void MustBe(const char* key, bool allowed) {
    if (Flag(key, allowed) != allowed) Wrong(key, Find(key), allowed ? "true" : "false");
  }

  void MustBe(const char* key, double allowed, double absent) {
    const nlohmann::json* value = Find(key);
    if (value != nullptr && !value->is_number())
      return Wrong(key, value, fmt::format("{}", allowed));
    const double number = value == nullptr ? absent : value->get<double>();
    if (!(std::abs(number - allowed) <= 1e-6 * allowed)) {
      Refuse(fmt::format("{} = {}: allowed is {}", key, number, allowed));
    }
  }

  /// The text, which is one of `allowed` or an error; `absent` where the key is missing.
  std::string OneOf(const char* key, std::initializer_list<const char*> allowed,
                    const char* absent) {
    const nlohmann::json* value = Find(key);
    if (value != nullptr && !value->is_string()) {
      Wrong(key, value, fmt::format("{}", fmt::join(allowed, ", ")));
      return absent;
    }
    const std::string text = value == nullptr ? absent : value->get<std::string>();
    for (const char* one : allowed) {
      if (text == one) return text;
    }
    Refuse(fmt::format("{} = {}: allowed {} {}", key, Printable(text, 40),
                       allowed.size() == 1 ? "is" : "are", fmt::join(allowed, ", ")));
    return absent;
  }

  /// A key under which other settings of the model hide: missing or null.
  void MustBeAbsent(const char* key) {
    if (const nlohmann::json* value = Find(key)) Wrong(key, value, "null");
  }

  /// Whether the key is there, null or not.
  bool Has(const char* key) const { return json_.contains(key); }

  const nlohmann::json* Find(const char* key) const {
    const auto found = json_.find(key);
    return found == json_.end() || found->is_null() ? nullptr : &*found;
  }

  void Refuse(std::string message) {
    if (!error_) error_ = std::move(message);
  }

 private:
  void Wrong(const char* key, const nlohmann::json* value, const std::string& allowed) {
    Refuse(value == nullptr ? fmt::format("{} is missing: {} is needed", key, allowed)
                            : fmt::format("{} = {}: allowed is {}", key, InWords(*value), allowed));
  }

  const nlohmann::json& json_;
  std::optional<std::string> error_;
};

}  // namespace adaptive_train
