// Files of named tensors in the safetensors format (huggingface/safetensors, README "Format").
//
// A file holds the length of the header in 8 bytes, little-endian; the header, a JSON object
// {"NAME": {"dtype": "F32", "shape": [2, 3], "data_offsets": [0, 24]}, ..., "__metadata__": {...}}
// padded with spaces so that data begins at a multiple of 8; and the data, tensor behind tensor
// without gaps, row-major, little-endian, offsets counted from its beginning.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/result.h"
#include "runtime/data/regular_file.h"

namespace adaptive_train {

/// The format's own limit.
inline constexpr std::uint64_t kMaxSafetensorsHeader = 100'000'000;

/// Where a tensor lies in the data of its file.
struct SafetensorsEntry {
  std::string type;  // "F32", "BF16", "F16", "I64", ...
  std::vector<std::int64_t> shape;
  std::int64_t count = 0;   // elements
  std::uint64_t begin = 0;  // bytes
  std::uint64_t end = 0;
};

/// By the tensor's name.
using SafetensorsEntries = std::map<std::string, SafetensorsEntry>;

/// Reads a header in front of `data_bytes` bytes of data. Refuses what is not the format: names
/// that come twice, sizes that do not fit the shape, tensors that overlap or leave gaps, data that
/// no tensor covers. Any text is safe to pass.
Result<SafetensorsEntries> ParseSafetensorsHeader(std::string_view header,
                                                  std::uint64_t data_bytes);

/// An open file. Movable; any thread. Everything blocks.
class SafetensorsFile {
 public:
  /// Reads and checks the header. Errors name the file, and the tensor.
  static Result<SafetensorsFile> Open(const std::string& path);

  const std::string& path() const { return file_.path(); }
  const SafetensorsEntries& entries() const { return entries_; }
  /// The elements of a tensor of `shape`, from F32, BF16 or F16. Refuses a name that is not there,
  /// another shape, other types, and values that are not finite.
  Result<std::vector<float>> Read(const std::string& name,
                                  const std::vector<std::int64_t>& shape) const;

 private:
  SafetensorsFile(RegularFile file, std::int64_t data_offset, SafetensorsEntries entries)
      : file_(std::move(file)), data_offset_(data_offset), entries_(std::move(entries)) {}

  RegularFile file_;
  std::int64_t data_offset_;
  SafetensorsEntries entries_;
};

/// A tensor to write as F32. `fill` is called once, with as many elements as the shape has, all
/// zero.
struct TensorSource {
  std::string name;
  std::vector<std::int64_t> shape;
  std::function<void(std::span<float>)> fill;
};

/// Writes a file that PyTorch's readers take (metadata "format": "pt"), in the order of `tensors`,
/// whose names differ: to a temporary file beside `path`, synced, then renamed over it. On failure
/// the old file is untouched. Holds one tensor in memory at a time. Blocking.
Result<void> WriteSafetensors(const std::string& path, std::span<const TensorSource> tensors);

}  // namespace adaptive_train
