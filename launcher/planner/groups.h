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

/// Which devices of a node are bundled, where not all are alike.
enum class Bundling {
  kSpeed,   // the fastest, so that no slow one holds back many
  kMemory,  // the largest
  kAlike,   // equal ones first
};

/// As many groups as there can be, in the order of the devices' nodes. kAlike takes what is left
/// over by speed.
std::vector<Group> MakeGroups(const SearchTables& tables, int tensor,
                              Bundling bundling = Bundling::kSpeed);

/// All ways of bundling that differ; none if no node has `tensor` devices.
std::vector<std::vector<Group>> AllBundlings(const SearchTables& tables, int tensor);

/// Groups that no bundling betters: the i-th fastest of a node in any bundling is no faster, by the
/// slowness of its slowest member, and no member has a higher limit.
std::vector<Group> IdealGroups(const SearchTables& tables, int tensor);

}  // namespace adaptive_train
