// Whether rectangles tile the matrices of a model's parameters.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "core/result.h"
#include "runtime/checkpoint/checkpoint_format.h"

namespace adaptive_train {

/// Rows x columns of one parameter that a shard holds.
struct HeldRectangle {
  ElementRange rows;
  ElementRange columns;
  std::size_t shard = 0;

  std::int64_t size() const { return rows.size() * columns.size(); }
};
/// [parameters], each list in any order; every rectangle lies within its parameter.
using HeldRectangles = std::vector<std::vector<HeldRectangle>>;

/// Fails where two rectangles of a parameter overlap. `of` begins the messages: "first_moments of
/// ".
Result<void> CheckNoneTwice(const std::vector<CheckpointParameter>& parameters,
                            HeldRectangles& held, const std::string& of);
/// Fails also where an element of a parameter is in no rectangle.
Result<void> CheckTiled(const std::vector<CheckpointParameter>& parameters, HeldRectangles& held,
                        const std::string& of);

}  // namespace adaptive_train
