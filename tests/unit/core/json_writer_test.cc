// What is written reads back, also by another library.
#include "core/json_writer.h"

#include <gtest/gtest.h>

#include <limits>
#include <nlohmann/json.hpp>
#include <random>

namespace adaptive_train {

struct Point {
  int x = 0;
  std::optional<double> y;
};
static void WriteJson(std::string& to, const Point& point) {
  JsonObject object(to);
  object.Add("x", point.x);
  if (point.y) object.Add("y", point.y);
}

namespace json_writer_test {
namespace {

TEST(JsonWriter, WritesMembersInOrderAndListsAndNothing) {
  std::string text;
  JsonObject(text)
      .Add("name", "n1")
      .Add("points", std::vector<Point>{{1, 0.5}, {-2, std::nullopt}})
      .Add("none", std::optional<std::string>())
      .Add("some", std::optional<std::string>("{"))
      .Add("empty", std::vector<std::string>())
      .Add("true", true)
      .Add("nothing", nullptr);
  EXPECT_EQ(text,
            R"({"name":"n1","points":[{"x":1,"y":0.5},{"x":-2}],"none":null,"some":"{","empty":[],)"
            R"("true":true,"nothing":null})");
  std::string empty;
  { const JsonObject object(empty); }
  EXPECT_EQ(empty, "{}");
}

TEST(JsonWriter, NumbersReadBackAsTheyWere) {
  using Int = std::numeric_limits<std::int64_t>;
  using Real = std::numeric_limits<double>;
  EXPECT_EQ(JsonOf(Int::min()), "-9223372036854775808");
  EXPECT_EQ(JsonOf(Int::max()), "9223372036854775807");
  for (const double value : {0.0, -0.0, 1.0, 0.1, 1e300, Real::max(), Real::min(),
                             Real::denorm_min(), 123456789.125, 1.9e9}) {
    const auto read = nlohmann::json::parse(JsonOf(value));
    ASSERT_TRUE(read.is_number()) << JsonOf(value);
    EXPECT_EQ(read.get<double>(), value);
  }
  std::mt19937_64 random(1);
  for (int i = 0; i < 10000; ++i) {
    const std::uint64_t bits = random();
    double value = 0;
    static_assert(sizeof value == sizeof bits);
    std::memcpy(&value, &bits, sizeof value);
    if (!std::isfinite(value)) continue;
    EXPECT_EQ(nlohmann::json::parse(JsonOf(value)).get<double>(), value);
  }
  EXPECT_EQ(JsonOf(Real::infinity()), "null");
  EXPECT_EQ(JsonOf(Real::quiet_NaN()), "null");
}

/// As nlohmann's library writes it.
std::string Expected(const std::string& text) {
  return nlohmann::json(text).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

TEST(JsonWriter, AnyBytesGiveTextThatReadsBack) {
  for (const char* text : {"", "plain", "\"\\/", "a\nb\tc\rd", "\x01\x1f\x7f", "\xc3\xa4",
                           "\xe2\x82\xac", "\xf0\x9f\x98\x80"})
    EXPECT_EQ(nlohmann::json::parse(JsonOf(text)).get<std::string>(), text);
  // Longer than needed, surrogates, beyond Unicode, cut off, out of place.
  for (const char* text : {"\xc0\xaf", "\xe0\x80\xaf", "\xf0\x80\x80\xaf", "\xed\xa0\x80",
                           "\xf4\x90\x80\x80", "\xf5", "\xff", "a\xc3", "\xe2\x82", "\x80"})
    EXPECT_NE(nlohmann::json::parse(JsonOf(text)).get<std::string>().find("\xef\xbf\xbd"),
              std::string::npos);
  std::mt19937 random(2);
  for (int i = 0; i < 20000; ++i) {
    std::string text;
    for (std::size_t size = random() % 12; text.size() < size;)
      text += static_cast<char>(random() % 3 == 0 ? random() % 128 : 0xc0 + random() % 64);
    const auto read = nlohmann::json::parse(JsonOf(text), nullptr, false);
    ASSERT_FALSE(read.is_discarded()) << JsonOf(text);
    if (Expected(text).find("\xef\xbf\xbd") == std::string::npos) {
      EXPECT_EQ(read.get<std::string>(), text);
    }
  }
}

TEST(JsonWriter, IndentsForPeople) {
  EXPECT_EQ(Indented(R"({"b":[1],"a":{}})", 1), "{\n \"b\": [\n  1\n ],\n \"a\": {}\n}");
}

}  // namespace
}  // namespace json_writer_test
}  // namespace adaptive_train
