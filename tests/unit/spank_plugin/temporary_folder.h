// A folder for one test, open to all users, removed with the object.
#pragma once

#include <sys/stat.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <stdexcept>
#include <string>

namespace adaptive_train {

class TemporaryFolder {
 public:
  TemporaryFolder() {
    char name[] = "/tmp/adaptive-train-test.XXXXXX";
    if (::mkdtemp(name) == nullptr || ::chmod(name, 0755) != 0)
      throw std::runtime_error("cannot make a folder in /tmp");
    path_ = name;
  }
  ~TemporaryFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;

  const std::string& Path() const { return path_; }

  /// Writes a file below the folder, creating the folders on the way.
  void Write(const std::string& name, const std::string& text) const {
    const std::filesystem::path file = path_ + "/" + name;
    std::filesystem::create_directories(file.parent_path());
    std::ofstream(file) << text;
  }

 private:
  std::string path_;
};

}  // namespace adaptive_train
