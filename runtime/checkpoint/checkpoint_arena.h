// What the arenas of a rank hold of a model: strided blocks of its parameters.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "core/result.h"
#include "runtime/checkpoint/checkpoint_format.h"
#include "runtime/model/bucket_rule.h"
#include "runtime/model/parameter_layout.h"

namespace adaptive_train {

/// Rows x columns of a parameter. A parameter of two dimensions or more is seen as a matrix of its
/// first dimension times the product of the others, any other one as a single row. In an arena the
/// block lies row after row, and in each row one range of columns after the other.
struct ParameterBlock {
  std::string name;
  ElementRange rows = {};      // empty: all of them
  ElementRanges columns = {};  // ascending, without overlaps; none: all of them
  bool copy = false;           // another arena holds these elements too, and they are written there

  bool operator==(const ParameterBlock&) const = default;
};

/// What ranks that hold the same part of a model have in common. The blocks lie in the arena in
/// this order, without gaps. The rule says which place writes which elements of it.
struct CheckpointArena {
  std::vector<ParameterBlock> blocks;
  BucketRule rule;
};

/// A rank's part of what is written of an arena.
struct ArenaShare {
  BucketRule rule;
  std::int64_t place = 0;
};

/// The parameters of a stage, or a tensor rank's part of them. What a lower tensor rank has as well
/// is marked as a copy; so is the second one of a tied embedding.
std::vector<ParameterBlock> BlocksOf(const ParameterLayout& layout);

/// Where the elements of a model are counted: its parameters, one after the other.
class ModelPlaces {
 public:
  struct Parameter {
    std::size_t number = 0;  // in the list
    std::int64_t begin = 0;  // its first element's place
    std::int64_t rows = 0;
    std::int64_t columns = 0;
  };

  /// The parameters must outlive this.
  explicit ModelPlaces(const std::vector<CheckpointParameter>& parameters);
  /// nullptr where there is none of that name.
  const Parameter* Find(std::string_view name) const;

 private:
  std::unordered_map<std::string_view, Parameter> by_name_;
};

/// Elements that are neighbours both in an arena and in the model.
struct ArenaRun {
  std::int64_t begin = 0;  // in the arena
  std::int64_t place = 0;  // of the first one in the model
  std::int64_t count = 0;

  bool operator==(const ArenaRun&) const = default;
};

/// Where an arena's elements are in the model. It is as large as the list of blocks. A value; any
/// thread.
class ArenaMap {
 public:
  /// A block whose rows and columns are named.
  struct Block {
    std::size_t parameter = 0;  // its number
    ElementRange rows;
    ElementRanges columns;
    bool copy = false;
    std::int64_t begin = 0;   // in the arena
    std::int64_t place = 0;   // in the model, of the first row's first column, held or not
    std::int64_t stride = 0;  // columns of the parameter
    std::int64_t width = 0;   // columns held
    std::vector<std::int64_t> column_offsets;  // of each range, in a row of the block

    std::int64_t end() const { return begin + rows.size() * width; }
  };

  /// Fails where a block is of no parameter or not within it; names the block.
  static Result<ArenaMap> Of(const ModelPlaces& places, const std::vector<ParameterBlock>& blocks);

  const std::vector<Block>& blocks() const { return blocks_; }
  /// Elements of the arena.
  std::int64_t size() const { return blocks_.empty() ? 0 : blocks_.back().end(); }
  /// The ranges, within the arena, less the elements of copies.
  ElementRanges WithoutCopies(const ElementRanges& ranges) const;
  /// The ranges in the order of the arena, in as few runs as there are.
  std::vector<ArenaRun> RunsOf(const ElementRanges& ranges) const;

 private:
  std::size_t BlockAt(std::int64_t element) const;

  std::vector<Block> blocks_;  // none is empty
};

}  // namespace adaptive_train
