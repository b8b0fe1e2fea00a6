// The tensors of a Hugging Face folder, in one file or in shards.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "core/result.h"
#include "runtime/checkpoint/safetensors.h"

namespace adaptive_train {

/// Opens model.safetensors, or what model.safetensors.index.json lists. One thread; blocking.
class HfWeights {
 public:
  static Result<HfWeights> Open(const std::string& folder);

  /// The first of `names` that is there; fails, naming the first, where none is.
  Result<std::string> Find(const std::vector<std::string>& names) const;
  /// Shape of a tensor that is there.
  const std::vector<std::int64_t>& ShapeOf(const std::string& name) const;
  Result<std::vector<float>> Read(const std::string& name, const std::vector<std::int64_t>& shape);
  /// Elements of all tensors.
  double Elements() const;
  /// Tensors that nobody has read, in the order of their names.
  std::vector<std::string> Unread() const;

 private:
  explicit HfWeights(std::string folder) : folder_(std::move(folder)) {}
  Result<void> AddWhole(const std::string& path);
  Result<void> AddIndexed(const std::string& index_path);

  std::string folder_;
  std::vector<SafetensorsFile> files_;
  std::map<std::string, std::size_t> file_of_;  // by tensor
  std::set<std::string> read_;
};

}  // namespace adaptive_train
