// Numbers as the little-endian bytes in files.
#pragma once

#include <cstdint>
#include <cstring>
#include <filesystem>
#include <initializer_list>
#include <string>

#include "tests/unit/runtime_data/text_file.h"

namespace adaptive_train {

template <class T>
std::string Bytes(std::initializer_list<T> numbers) {
  std::string bytes;
  for (const T number : numbers) {
    char raw[sizeof number];
    std::memcpy(raw, &number, sizeof number);
    bytes.append(raw, sizeof number);
  }
  return bytes;
}

/// PREFIX.idx and PREFIX.bin, which exist as long as the object.
class MegatronFiles {
 public:
  MegatronFiles(const std::string& index, const std::string& tokens) : reserved_("") {
    std::ofstream(index_path(), std::ios::binary) << index;
    std::ofstream(token_path(), std::ios::binary) << tokens;
    std::filesystem::remove(prefix());
  }
  ~MegatronFiles() {
    std::filesystem::remove(index_path());
    std::filesystem::remove(token_path());
  }

  const std::string& prefix() const { return reserved_.path(); }
  std::string index_path() const { return prefix() + ".idx"; }
  std::string token_path() const { return prefix() + ".bin"; }

 private:
  TextFile reserved_;  // keeps the name to itself
};

/// An index built by hand: sequences of `sizes` tokens, documents from mark to mark.
inline std::string Index(std::uint8_t type, std::int64_t bytes_each,
                         std::initializer_list<std::int32_t> sizes,
                         std::initializer_list<std::int64_t> marks) {
  std::string index = std::string("MMIDIDX\0\0", 9) + Bytes<std::uint64_t>({1}) +
                      Bytes<std::uint8_t>({type}) + Bytes<std::uint64_t>({sizes.size()}) +
                      Bytes<std::uint64_t>({marks.size()}) + Bytes(sizes);
  std::int64_t place = 0;
  for (const std::int32_t size : sizes) {
    index += Bytes<std::int64_t>({place});
    place += size * bytes_each;
  }
  return index + Bytes(marks);
}

}  // namespace adaptive_train
