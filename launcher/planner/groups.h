// Devices bundled into groups that share each layer of a stage: what the search places.
#pragma once

#include <vector>

#include "launcher/planner/search_tables.h"

namespace adaptive_train {

/// `tensor` devices of one node.
struct Group {
  std::vector<int> devices;
  int node = 0;
  int device_class = 0;  // of the slowest
  double slowness = 0;   // of that class, SearchTables::Slowness
  double limit = 0;      // bytes that a member may use, of the smallest
};

/// As many groups as there can be, in the order of the devices' nodes; inside a node the fastest
/// devices share a group, so that no slow one holds back many.
std::vector<Group> MakeGroups(const SearchTables& tables, int tensor);

}  // namespace adaptive_train
