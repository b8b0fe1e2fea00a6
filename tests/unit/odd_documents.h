// JSON documents that are cut off or hold what nobody expects: a reader must refuse them in one line
// of its own words, or take them.
#pragma once

#include <gtest/gtest.h>

#include <initializer_list>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "core/result.h"

namespace adaptive_train {

/// Values that a member may have in a file of anybody's.
inline std::vector<nlohmann::json> OddValues() {
  nlohmann::json deep = nlohmann::json::array();
  for (int i = 0; i < 1000; ++i) {
    nlohmann::json outer = nlohmann::json::array();
    outer.push_back(std::move(deep));
    deep = std::move(outer);
  }
  return {nullptr,
          true,
          -1,
          0.5,
          1e300,
          UINT64_MAX,
          "x",
          "",
          "\n",
          nlohmann::json::array(),
          nlohmann::json::object(),
          nlohmann::json::array({nullptr}),
          deep};
}

/// Fails unless `read` gives a value or an error that a person can use.
template <class Read>
void ExpectTakenOrRefused(const std::string& text, Read read) {
  SCOPED_TRACE(text.substr(0, 200));
  std::string message;
  ASSERT_NO_THROW({
    const auto value = read(text);
    message = value ? "taken" : value.error().message;
  });
  EXPECT_FALSE(message.empty());
  EXPECT_EQ(message.find('\n'), std::string::npos) << message;
  EXPECT_EQ(message.find("json.exception"), std::string::npos) << message;
  EXPECT_EQ(message.find("type must be"), std::string::npos) << message;
}

/// Gives `read` every beginning of the well-formed `text`, which must be refused, and the text
/// with each of its values missing or replaced by an odd one.
template <class Read>
void ExpectOddDocumentsRefused(const std::string& text, Read read) {
  const auto whole = nlohmann::json::parse(text);
  ASSERT_TRUE(read(text));
  const std::size_t end = text.find_last_not_of(" \n");
  const std::size_t stride = 1 + end / 500;
  for (std::size_t size = 0; size <= end; size += stride) {
    EXPECT_FALSE(read(text.substr(0, size)));
    ExpectTakenOrRefused(text.substr(0, size), read);
  }
  const auto values = whole.flatten();
  for (const auto& value : values.items()) {
    // The value and what holds it, up to the document itself.
    for (nlohmann::json::json_pointer at(value.key());; at.pop_back()) {
      for (const nlohmann::json& odd : OddValues()) {
        auto changed = whole;
        changed[at] = odd;
        ExpectTakenOrRefused(changed.dump(), read);
      }
      if (at.empty()) break;
      auto without = whole;
      auto& holder = without[at.parent_pointer()];
      if (holder.is_object()) holder.erase(at.back());
      ExpectTakenOrRefused(without.dump(), read);
    }
  }
}

}  // namespace adaptive_train
