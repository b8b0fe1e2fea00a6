// What a fuzzed parser provides, and files for parsers that read files.
#pragma once

#include <sys/mman.h>
#include <unistd.h>

#include <cstdlib>
#include <string>
#include <string_view>
#include <vector>

namespace adaptive_train::fuzz {

/// Gives `input` to the parser, which must neither crash nor read outside of it, whatever it is.
void FuzzOne(std::string_view input);

/// Well-formed inputs, from which the driver makes malformed ones.
std::vector<std::string> FuzzSeeds();

/// A file that lives in memory and has a path.
class MemoryFile {
 public:
  explicit MemoryFile(std::string_view bytes) : descriptor_(::memfd_create("fuzz", MFD_CLOEXEC)) {
    if (descriptor_ < 0 ||
        ::write(descriptor_, bytes.data(), bytes.size()) != static_cast<ssize_t>(bytes.size()))
      std::abort();
  }
  ~MemoryFile() { ::close(descriptor_); }
  MemoryFile(const MemoryFile&) = delete;
  MemoryFile& operator=(const MemoryFile&) = delete;
  std::string path() const { return "/proc/self/fd/" + std::to_string(descriptor_); }

 private:
  int descriptor_;
};

/// Ends the program with a report of the run that did it.
inline void Require(bool held) {
  if (!held) std::abort();
}

}  // namespace adaptive_train::fuzz
