#include "launcher/doctor/plugin_file.h"

#include <elf.h>
#include <fmt/format.h>
#include <glob.h>

#include <cstdio>
#include <cstring>
#include <filesystem>
#include <sstream>
#include <string_view>
#include <vector>

#include "core/file_io.h"

namespace adaptive_train {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kMaxConfBytes = 1 << 20;
constexpr std::size_t kMaxPluginBytes = std::size_t{64} << 20;
constexpr int kMostIncludes = 8;  // within each other, as Slurm itself limits them
constexpr const char* kPluginName = "adaptive_train.so";

std::vector<std::string> Matches(const std::string& pattern) {
  glob_t found{};
  std::vector<std::string> paths;
  if (::glob(pattern.c_str(), 0, nullptr, &found) == 0)
    paths.assign(found.gl_pathv, found.gl_pathv + found.gl_pathc);
  ::globfree(&found);
  return paths;
}

Result<std::optional<PluginLine>> FindIn(const std::string& path, int depth) {
  auto text = ReadFile(path, kMaxConfBytes);
  if (!text) return tl::unexpected(text.error());
  std::stringstream lines(*text);
  int number = 0;
  for (std::string line; std::getline(lines, line);) {
    ++number;
    std::stringstream words(line.substr(0, line.find('#')));
    std::string kind, name;
    if (!(words >> kind >> name)) continue;
    if (kind == "include" && depth < kMostIncludes) {
      const std::string pattern = (fs::path(path).parent_path() / name).string();
      for (const std::string& included : Matches(pattern)) {
        auto found = FindIn(included, depth + 1);
        if (!found || *found) return found;
      }
    } else if (fs::path(name).filename() == kPluginName) {
      return PluginLine{name, kind == "required", fmt::format("{}: line {}", path, number)};
    }
  }
  return std::nullopt;
}

/// A struct at `offset` of a file's bytes; none where it does not fit in.
template <class T>
std::optional<T> At(const std::string& bytes, std::uint64_t offset) {
  if (offset > bytes.size() || bytes.size() - offset < sizeof(T)) return std::nullopt;
  T value;
  std::memcpy(&value, bytes.data() + offset, sizeof value);
  return value;
}

std::string_view NameAt(const std::string& bytes, std::uint64_t offset) {
  if (offset >= bytes.size()) return "";
  const auto end = bytes.find('\0', offset);
  return end == bytes.npos ? "" : std::string_view(bytes).substr(offset, end - offset);
}

/// Where the file has what is loaded at `address`.
std::optional<std::uint64_t> OffsetOf(const std::string& bytes, const Elf64_Ehdr& header,
                                      std::uint64_t address) {
  for (std::uint64_t i = 0; i < header.e_phnum; ++i) {
    const auto part = At<Elf64_Phdr>(bytes, header.e_phoff + i * sizeof(Elf64_Phdr));
    if (!part) return std::nullopt;
    if (part->p_type == PT_LOAD && address >= part->p_vaddr &&
        address - part->p_vaddr < part->p_filesz)
      return part->p_offset + (address - part->p_vaddr);
  }
  return std::nullopt;
}

/// The address of a symbol in a table of dynamic symbols.
std::optional<std::uint64_t> AddressIn(const std::string& bytes, const Elf64_Shdr& table,
                                       const Elf64_Shdr& names, std::string_view symbol) {
  const std::uint64_t count = table.sh_size / sizeof(Elf64_Sym);
  for (std::uint64_t i = 0; i < count; ++i) {
    const auto entry = At<Elf64_Sym>(bytes, table.sh_offset + i * sizeof(Elf64_Sym));
    if (!entry) return std::nullopt;
    if (entry->st_shndx != SHN_UNDEF && NameAt(bytes, names.sh_offset + entry->st_name) == symbol)
      return entry->st_value;
  }
  return std::nullopt;
}

std::optional<std::uint32_t> NumberOf(const std::string& bytes, std::string_view symbol) {
  const auto header = At<Elf64_Ehdr>(bytes, 0);
  if (!header || std::memcmp(header->e_ident, ELFMAG, SELFMAG) != 0 ||
      header->e_ident[EI_CLASS] != ELFCLASS64)
    return std::nullopt;
  const auto section = [&](std::uint64_t i) {
    return At<Elf64_Shdr>(bytes, header->e_shoff + i * sizeof(Elf64_Shdr));
  };
  for (std::uint64_t i = 0; i < header->e_shnum; ++i) {
    const auto table = section(i);
    if (!table || table->sh_type != SHT_DYNSYM) continue;
    const auto names = section(table->sh_link);
    const auto address = names ? AddressIn(bytes, *table, *names, symbol) : std::nullopt;
    const auto offset = address ? OffsetOf(bytes, *header, *address) : std::nullopt;
    return offset ? At<std::uint32_t>(bytes, *offset) : std::nullopt;
  }
  return std::nullopt;
}

}  // namespace

Result<std::optional<PluginLine>> FindPluginLine(const std::string& plugstack) {
  return FindIn(plugstack, 0);
}

Result<std::uint32_t> PluginVersionOf(const std::string& path) {
  auto bytes = ReadFile(path, kMaxPluginBytes);
  if (!bytes) return tl::unexpected(bytes.error());
  if (const auto number = NumberOf(*bytes, "plugin_version")) return *number;
  return Fail(path + ": this is no Slurm plugin for 64-bit Linux");
}

std::optional<std::uint32_t> SlurmVersionOf(const std::string& text) {
  const auto digit = text.find_first_of("0123456789");
  if (digit == text.npos) return std::nullopt;
  unsigned major = 0, minor = 0, micro = 0;
  if (std::sscanf(text.c_str() + digit, "%3u.%3u.%3u", &major, &minor, &micro) < 2)
    return std::nullopt;
  return (major & 0xFF) << 16 | (minor & 0xFF) << 8 | (micro & 0xFF);
}

std::string ReleaseOf(std::uint32_t version) {
  return fmt::format("{}.{:02}", version >> 16 & 0xFF, version >> 8 & 0xFF);
}

}  // namespace adaptive_train
