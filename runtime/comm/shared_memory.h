// Memory that the members of a group share, all of which are on one node.
#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <utility>

#include <tl/expected.hpp>

#include "runtime/comm/group.h"
#include "runtime/comm/request.h"

namespace adaptive_train {

/// A mapping of the same pages in the processes of all members; anonymous, so that nothing is left
/// behind whatever happens to them. Movable. Whoever uses it keeps its own order of accesses.
class SharedMemory {
 public:
  /// All members call it, with the same size, and all get the same answer: memory of any content,
  /// or none where a member cannot map it, such as in another container. Blocks.
  static tl::expected<std::optional<SharedMemory>, CommError> Among(Group& group, std::size_t bytes,
                                                                    Deadline deadline);
  SharedMemory(SharedMemory&& other) noexcept : memory_(std::exchange(other.memory_, {})) {}
  SharedMemory& operator=(SharedMemory&& other) noexcept {
    std::swap(memory_, other.memory_);
    return *this;
  }
  ~SharedMemory();

  std::span<std::byte> bytes() const { return memory_; }

 private:
  explicit SharedMemory(std::span<std::byte> memory) : memory_(memory) {}

  std::span<std::byte> memory_;
};

}  // namespace adaptive_train
