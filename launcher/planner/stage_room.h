// How many micro-batches per second pipelines can do if memory keeps groups out of large stages.
#pragma once

#include <cstdint>
#include <vector>

#include "launcher/planner/search_tables.h"

namespace adaptive_train {

/// Groups of the same class and memory limit, and the share of the model that fits them.
struct GroupKind {
  int device_class = 0;
  double limit = 0;  // bytes
  int count = 0;
  double rate = 0;           // micro-batches of the whole model per second
  std::vector<double> room;  // the largest share of the work that fits them; index = stage
};

/// The largest share of the model's work of any run of layers that fits `limit` while `in_flight`
/// micro-batches are held. `prices` counts work, as running sums that end at 1.
double RoomFor(const SearchTables& tables, const LayerSums& sums, const Shape& shape, double limit,
               std::int64_t in_flight, const std::vector<double>& prices);

/// An upper bound of the micro-batches per second of `data` pipelines of `stages` groups with the
/// same cuts. A stage with a share x of the work needs groups with room for x, whose rates add up
/// to x times the result. `kinds` must be in ascending order of limit.
double MostRate(const std::vector<GroupKind>& kinds, int stages, int data);

}  // namespace adaptive_train
