// Memory that could not be had, with what it was for and how much.
#pragma once

#include <cstddef>
#include <new>
#include <string>
#include <utility>

namespace adaptive_train::kernels {

/// A std::bad_alloc that says more. A value.
class AllocationFailure : public std::bad_alloc {
 public:
  AllocationFailure(std::string purpose, std::size_t bytes)
      : purpose_(std::move(purpose)),
        bytes_(bytes),
        what_("no memory for " + purpose_ + ": " + std::to_string(bytes >> 20) + " MiB") {}

  std::size_t bytes() const { return bytes_; }
  /// "no memory for gradients: 1200 MiB".
  const char* what() const noexcept override { return what_.c_str(); }

 private:
  std::string purpose_;
  std::size_t bytes_;
  std::string what_;
};

/// What `make` gives; an allocation in it that fails is said to be for `purpose`.
template <class Make>
auto AllocatedFor(const char* purpose, const Make& make) {
  try {
    return make();
  } catch (const AllocationFailure& failure) {
    throw AllocationFailure(purpose, failure.bytes());
  }
}

}  // namespace adaptive_train::kernels
