// How many micro-batches a second pipelines can do when memory keeps groups out of large stages.
#pragma once

#include <cstdint>
#include <vector>

#include "launcher/planner/search_tables.h"

namespace adaptive_train {

/// Groups of the same class and memory limit, and how much of the model fits them.
struct GroupKind {
  int device_class = 0;
  double limit = 0;  // bytes
  int count = 0;
  double rate = 0;           // micro-batches per second, the whole model's work counted
  std::vector<double> room;  // the largest share of the work that fits them; index = stage
};

/// The largest share of the model's work, as `prices` (running sums that end at 1) count it, of any
/// run of layers that fits `limit` with `in_flight` micro-batches held.
double RoomFor(const SearchTables& tables, const LayerSums& sums, const Shape& shape, double limit,
               std::int64_t in_flight, const std::vector<double>& prices);

/// No `data` pipelines of `stages` groups each, with the same cuts, do more micro-batches a second.
/// A stage with a share x of the work needs groups with room for x, whose rates add up to x times
/// the answer. `kinds` in ascending order of limit.
double MostRate(const std::vector<GroupKind>& kinds, int stages, int data);

}  // namespace adaptive_train
