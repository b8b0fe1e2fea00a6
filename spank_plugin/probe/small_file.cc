#include "spank_plugin/probe/small_file.h"

#include <algorithm>
#include <charconv>
#include <filesystem>

#include "core/file_io.h"

namespace adaptive_train::probe {
namespace {

constexpr std::size_t kMaxBytes = std::size_t{1} << 20;

/// Whether `name` has the form 0000:3b:00.0.
bool IsPciAddress(const std::string& name) {
  constexpr std::string_view kForm = "xxxx:xx:xx.x";
  if (name.size() != kForm.size()) return false;
  for (std::size_t i = 0; i < name.size(); ++i) {
    const bool is_digit = (name[i] >= '0' && name[i] <= '9') || (name[i] >= 'a' && name[i] <= 'f');
    if (kForm[i] == 'x' ? !is_digit : name[i] != kForm[i]) return false;
  }
  return true;
}

}  // namespace

std::optional<std::string> ReadSmallFile(const std::string& path) {
  auto text = ReadFile(path, kMaxBytes);
  if (!text) return std::nullopt;
  while (!text->empty() && text->back() == '\n') text->pop_back();
  return *text;
}

std::optional<long long> ReadNumber(const std::string& path) {
  const auto text = ReadSmallFile(path);
  long long number = 0;
  if (!text || std::from_chars(text->data(), text->data() + text->size(), number).ec != std::errc())
    return std::nullopt;
  return number;
}

std::vector<std::string> ListFolder(const std::string& path) {
  std::vector<std::string> names;
  std::error_code error;
  for (std::filesystem::directory_iterator entry(path, error), end; !error && entry != end;
       entry.increment(error)) {
    names.push_back(entry->path().filename());
  }
  std::sort(names.begin(), names.end());
  return names;
}

std::string Below(const std::string& folder, const std::string& name) {
  std::string path = folder;
  path += '/';
  path += name;
  return path;
}

std::string PciAddressOf(const std::string& device_link) {
  std::error_code error;
  const std::filesystem::path path = std::filesystem::canonical(device_link, error);
  if (error) return "";
  // A virtio card is below its PCI device; the last address in the path is the card's.
  std::string address;
  for (const auto& part : path) {
    if (IsPciAddress(part)) address = part;
  }
  return address;
}

}  // namespace adaptive_train::probe
