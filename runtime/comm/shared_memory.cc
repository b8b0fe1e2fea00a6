#include "runtime/comm/shared_memory.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cstdint>
#include <cstring>
#include <random>
#include <string>
#include <string_view>

namespace adaptive_train {
namespace {

constexpr const char* kName = "adaptive-train tensor ranks";

/// Closes the file at the end of a scope.
struct File {
  int descriptor = -1;
  ~File() {
    if (descriptor >= 0) ::close(descriptor);
  }
};

/// nullptr: it cannot be mapped.
void* Map(int descriptor, std::size_t bytes) {
  if (descriptor < 0) return nullptr;
  void* memory = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, descriptor, 0);
  return memory == MAP_FAILED ? nullptr : memory;
}

/// A file of pages without a name in any file system; -1 on failure.
int CreatePages(std::size_t bytes) {
  const int descriptor = ::memfd_create(kName, MFD_CLOEXEC);
  if (descriptor >= 0 && ::ftruncate(descriptor, static_cast<off_t>(bytes)) == 0) return descriptor;
  if (descriptor >= 0) ::close(descriptor);
  return -1;
}

/// Another process's pages; -1 where that number means something else to this one.
int OpenPages(std::int64_t process, std::int64_t descriptor) {
  const std::string path = fmt::format("/proc/{}/fd/{}", process, descriptor);
  std::array<char, 256> target{};
  const ssize_t size = ::readlink(path.c_str(), target.data(), target.size());
  if (size <= 0 || std::string_view(target.data(), static_cast<std::size_t>(size)).find(kName) ==
                       std::string_view::npos)
    return -1;
  return ::open(path.c_str(), O_RDWR | O_CLOEXEC);
}

bool HasSize(int descriptor, std::size_t bytes) {
  struct stat status {};
  return ::fstat(descriptor, &status) == 0 && status.st_size == static_cast<off_t>(bytes);
}

}  // namespace

tl::expected<std::optional<SharedMemory>, CommError> SharedMemory::Among(Group& group,
                                                                         std::size_t bytes,
                                                                         Deadline deadline) {
  const auto sum = [&](std::span<double> numbers) {
    return group.AllReduce(Purpose::kStatistic, numbers).Wait(deadline);
  };
  File file;
  std::uint32_t mark = 0;  // tells these pages from any others of the same name
  std::array<double, 3> where{};
  if (group.Rank() == 0) {
    file.descriptor = CreatePages(bytes);
    mark = std::random_device()();
    where = {static_cast<double>(::getpid()), static_cast<double>(file.descriptor),
             static_cast<double>(mark)};
  }
  void* memory = Map(file.descriptor, bytes);
  if (memory != nullptr) std::memcpy(memory, &mark, sizeof mark);
  if (auto done = sum(where); !done) {
    if (memory != nullptr) ::munmap(memory, bytes);
    return tl::unexpected(done.error());
  }
  if (group.Rank() > 0) {
    file.descriptor =
        OpenPages(static_cast<std::int64_t>(where[0]), static_cast<std::int64_t>(where[1]));
    mark = static_cast<std::uint32_t>(where[2]);
    if (HasSize(file.descriptor, bytes)) memory = Map(file.descriptor, bytes);
  }
  std::optional<SharedMemory> shared;
  if (memory != nullptr) shared = SharedMemory({static_cast<std::byte*>(memory), bytes});
  std::array<double, 1> failed{shared && std::memcmp(memory, &mark, sizeof mark) == 0 ? 0.0 : 1.0};
  if (auto done = sum(failed); !done) return tl::unexpected(done.error());
  if (failed[0] > 0) return std::nullopt;
  return shared;
}

SharedMemory::~SharedMemory() {
  if (!memory_.empty()) ::munmap(memory_.data(), memory_.size());
}

}  // namespace adaptive_train
