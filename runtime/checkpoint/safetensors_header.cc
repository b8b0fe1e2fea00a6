// Reading the header of a safetensors file, which may come from anyone.
#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>

#include "core/file_io.h"
#include "core/json.h"
#include "runtime/checkpoint/safetensors.h"

namespace adaptive_train {
namespace {

using Json = nlohmann::json;

/// Bytes of an element; 0 for a type that the format does not have.
std::uint64_t ElementBytes(std::string_view type) {
  struct Width {
    std::string_view type;
    std::uint64_t bytes;
  };
  static constexpr Width kWidths[] = {{"BOOL", 1},    {"U8", 1},  {"I8", 1},  {"F8_E5M2", 1},
                                      {"F8_E4M3", 1}, {"I16", 2}, {"U16", 2}, {"F16", 2},
                                      {"BF16", 2},    {"I32", 4}, {"U32", 4}, {"F32", 4},
                                      {"I64", 8},     {"U64", 8}, {"F64", 8}};
  for (const Width& width : kWidths) {
    if (width.type == type) return width.bytes;
  }
  return 0;
}

/// A number of JSON that is a whole one and not negative; `what` names it.
Result<std::uint64_t> Unsigned(const Json& value, const char* what) {
  if (!value.is_number_unsigned() || value.get<std::uint64_t>() > INT64_MAX) {
    return Fail(fmt::format("{} must hold whole numbers from 0", what));
  }
  return value.get<std::uint64_t>();
}

/// The bytes that a shape takes, and false where 64 bits do not hold them.
bool BytesOf(const SafetensorsEntry& entry, std::uint64_t& bytes) {
  bytes = ElementBytes(entry.type);
  const bool empty = std::find(entry.shape.begin(), entry.shape.end(), 0) != entry.shape.end();
  if (empty) bytes = 0;
  for (const std::int64_t length : entry.shape) {
    if (!empty && __builtin_mul_overflow(bytes, static_cast<std::uint64_t>(length), &bytes))
      return false;
  }
  return true;
}

Result<SafetensorsEntry> ParseEntry(const Json& json) {
  SafetensorsEntry entry;
  if (!json.is_object()) return Fail("not an object with dtype, shape and data_offsets");
  const auto type = json.find("dtype"), shape = json.find("shape"),
             offsets = json.find("data_offsets");
  if (type == json.end() || !type->is_string()) return Fail("no dtype");
  if (shape == json.end() || !shape->is_array()) return Fail("no shape");
  if (offsets == json.end() || !offsets->is_array() || offsets->size() != 2)
    return Fail("no data_offsets");
  entry.type = type->get<std::string>();
  if (ElementBytes(entry.type) == 0)
    return Fail(fmt::format("unknown dtype {}", Printable(entry.type, 20)));
  for (const Json& length : *shape) {
    const auto value = Unsigned(length, "shape");
    if (!value) return tl::unexpected(value.error());
    entry.shape.push_back(static_cast<std::int64_t>(*value));
  }
  const auto begin = Unsigned((*offsets)[0], "data_offsets"),
             end = Unsigned((*offsets)[1], "data_offsets");
  if (!begin) return tl::unexpected(begin.error());
  if (!end) return tl::unexpected(end.error());
  entry.begin = *begin;
  entry.end = *end;
  std::uint64_t bytes = 0;
  if (!BytesOf(entry, bytes) || entry.end < entry.begin || entry.end - entry.begin != bytes) {
    return Fail(fmt::format("data_offsets [{}, {}] are not the bytes of its shape", entry.begin,
                            entry.end));
  }
  entry.count = static_cast<std::int64_t>(bytes / ElementBytes(entry.type));
  return entry;
}

/// The tensors cover the data without a gap or an overlap.
Result<void> CheckCover(const SafetensorsEntries& entries, std::uint64_t data_bytes) {
  std::vector<const SafetensorsEntries::value_type*> order;
  for (const auto& entry : entries) order.push_back(&entry);
  std::sort(order.begin(), order.end(), [](const auto* a, const auto* b) {
    return std::pair(a->second.begin, a->second.end) < std::pair(b->second.begin, b->second.end);
  });
  std::uint64_t covered = 0;
  for (const auto* entry : order) {
    if (entry->second.begin != covered) {
      return Fail(fmt::format("tensor {} begins at byte {} of the data, expected {}",
                              Printable(entry->first), entry->second.begin, covered));
    }
    covered = entry->second.end;
  }
  if (covered != data_bytes) {
    return Fail(fmt::format("its tensors take {} bytes, the file holds {}", covered, data_bytes));
  }
  return {};
}

/// Parses JSON and notes a key of the outermost object that comes twice, which the library lets
/// pass.
Json ParseNotingRepeats(std::string_view text, std::string& repeated) {
  std::set<std::string, std::less<>> seen;
  const auto note = [&](int depth, Json::parse_event_t event, Json& parsed) {
    if (depth == 1 && event == Json::parse_event_t::key &&
        !seen.insert(parsed.get<std::string>()).second) {
      repeated = parsed.get<std::string>();
    }
    return true;
  };
  return Json::parse(text, note);
}

}  // namespace

Result<SafetensorsEntries> ParseSafetensorsHeader(std::string_view header,
                                                  std::uint64_t data_bytes) {
  SafetensorsEntries entries;
  try {
    std::string repeated;
    const Json json = ParseNotingRepeats(header, repeated);
    if (!json.is_object()) return Fail("the header is not a JSON object");
    if (!repeated.empty())
      return Fail(fmt::format("two tensors are named {}", Printable(repeated)));
    for (const auto& [name, value] : json.items()) {
      if (name == "__metadata__") continue;
      auto entry = ParseEntry(value);
      if (!entry) return FailIn("tensor " + Printable(name), entry.error());
      entries.emplace(name, std::move(*entry));
    }
  } catch (const Json::exception& error) {
    return FailIn("the header", Error{InWords(error)});
  }
  auto covered = CheckCover(entries, data_bytes);
  if (!covered) return tl::unexpected(covered.error());
  return entries;
}

}  // namespace adaptive_train
