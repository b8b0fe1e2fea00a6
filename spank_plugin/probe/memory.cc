#include "spank_plugin/probe/memory.h"

#include <cstdlib>
#include <optional>

#include "spank_plugin/probe/small_file.h"

namespace adaptive_train::probe {
namespace {

/// A line "Name:   123 kB", in bytes.
std::optional<std::int64_t> Entry(const std::string& text, const std::string& name) {
  const std::size_t place = ("\n" + text).find("\n" + name + ":");
  if (place == std::string::npos) return std::nullopt;
  return std::int64_t{1024} * std::strtoll(text.c_str() + place + name.size() + 1, nullptr, 10);
}

}  // namespace

void ReadMemory(Node& node, const std::string& root) {
  const std::string path = root + "/proc/meminfo";
  const auto text = ReadSmallFile(path);
  const auto total = text ? Entry(*text, "MemTotal") : std::nullopt;
  if (!total) {
    node.memory_status.status = path + (text ? " does not give MemTotal" : " cannot be read");
    return;
  }
  node.memory.total_bytes = *total;
  node.memory.available_bytes = Entry(*text, "MemAvailable").value_or(0);
}

}  // namespace adaptive_train::probe
