#include "runtime/checkpoint/hf_weights.h"

#include <fmt/format.h>

#include <filesystem>
#include <nlohmann/json.hpp>
#include <string_view>

#include "core/file_io.h"
#include "core/json.h"

namespace adaptive_train {
namespace {

constexpr std::size_t kMaxIndexBytes = std::size_t{64} << 20;

/// By tensor, the name of its file.
Result<std::map<std::string, std::string>> ParseIndex(const std::string& text) {
  std::map<std::string, std::string> files;
  try {
    const auto json = nlohmann::json::parse(text);
    const auto map = json.is_object() ? json.find("weight_map") : json.end();
    if (map == json.end() || !map->is_object()) return Fail("has no weight_map");
    for (const auto& [tensor, file] : map->items()) {
      if (!file.is_string())
        return Fail(fmt::format("weight_map: {} has no file's name", Printable(tensor)));
      files[tensor] = file.get<std::string>();
    }
  } catch (const nlohmann::json::exception& error) {
    return Fail(InWords(error));
  }
  if (files.empty()) return Fail("weight_map is empty");
  return files;
}

/// An index may name files beside itself only.
bool IsPlainName(std::string_view name) {
  return name.ends_with(".safetensors") && name.find('/') == std::string_view::npos &&
         name.find('\0') == std::string_view::npos;
}

}  // namespace

Result<HfWeights> HfWeights::Open(const std::string& folder) {
  HfWeights weights(folder);
  const std::string whole = folder + "/model.safetensors", index = whole + ".index.json";
  std::error_code ignored;
  Result<void> done;
  if (std::filesystem::exists(whole, ignored)) {
    done = weights.AddWhole(whole);
  } else if (std::filesystem::exists(index, ignored)) {
    done = weights.AddIndexed(index);
  } else {
    done = Fail(
        fmt::format("{}: holds neither model.safetensors nor model.safetensors.index.json; other "
                    "formats are not read",
                    folder));
  }
  if (!done) return tl::unexpected(done.error());
  return weights;
}

Result<void> HfWeights::AddWhole(const std::string& path) {
  auto file = SafetensorsFile::Open(path);
  if (!file) return tl::unexpected(file.error());
  for (const auto& [name, entry] : file->entries()) file_of_[name] = files_.size();
  files_.push_back(std::move(*file));
  return {};
}

Result<void> HfWeights::AddIndexed(const std::string& index_path) {
  auto text = ReadFile(index_path, kMaxIndexBytes);
  if (!text) return tl::unexpected(text.error());
  auto index = ParseIndex(*text);
  if (!index) return FailIn(index_path, index.error());
  std::map<std::string, std::size_t> opened;
  for (const auto& [tensor, name] : *index) {
    if (!IsPlainName(name)) {
      return Fail(fmt::format("{}: {} is not the name of a .safetensors file beside it", index_path,
                              Printable(name)));
    }
    if (!opened.contains(name)) {
      auto file = SafetensorsFile::Open(folder_ + "/" + name);
      if (!file) return tl::unexpected(file.error());
      opened[name] = files_.size();
      files_.push_back(std::move(*file));
    }
    if (!files_[opened[name]].entries().contains(tensor)) {
      return Fail(fmt::format("{}: tensor {} is not there, though {} says so",
                              files_[opened[name]].path(), Printable(tensor), index_path));
    }
    file_of_[tensor] = opened[name];
  }
  return {};
}

Result<std::string> HfWeights::Find(const std::vector<std::string>& names) const {
  for (const std::string& name : names) {
    if (file_of_.contains(name)) return name;
  }
  return Fail(fmt::format("{}: tensor {} is not there", folder_, names.front()));
}

const std::vector<std::int64_t>& HfWeights::ShapeOf(const std::string& name) const {
  return files_[file_of_.at(name)].entries().at(name).shape;
}

Result<std::vector<float>> HfWeights::Read(const std::string& name,
                                           const std::vector<std::int64_t>& shape) {
  read_.insert(name);
  return files_[file_of_.at(name)].Read(name, shape);
}

double HfWeights::Elements() const {
  double elements = 0;
  for (const auto& [name, file] : file_of_) {
    elements += static_cast<double>(files_[file].entries().at(name).count);
  }
  return elements;
}

std::vector<std::string> HfWeights::Unread() const {
  std::vector<std::string> unread;
  for (const auto& [name, file] : file_of_) {
    if (!read_.contains(name)) unread.push_back(name);
  }
  return unread;
}

}  // namespace adaptive_train
