// A temporary file with given bytes.
#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <string_view>

namespace adaptive_train {

/// Exists as long as the object.
class TextFile {
 public:
  explicit TextFile(std::string_view text)
      : path_(testing::TempDir() + "adaptive_train_text_XXXXXX") {
    const int descriptor = ::mkstemp(path_.data());
    EXPECT_GE(descriptor, 0);
    ::close(descriptor);
    std::ofstream(path_, std::ios::binary) << text;
  }
  ~TextFile() { std::filesystem::remove(path_); }
  TextFile(const TextFile&) = delete;
  TextFile& operator=(const TextFile&) = delete;

  const std::string& path() const { return path_; }
  void Resize(std::uintmax_t size) const { std::filesystem::resize_file(path_, size); }

 private:
  std::string path_;
};

}  // namespace adaptive_train
