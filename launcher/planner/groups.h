// Bundles devices into groups that share each layer of a stage: the units that the search places.
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
  double limit = 0;      // bytes that a member may use: the limit of the smallest
};

/// Which devices of a node are bundled if they are not all alike.
enum class Bundling {
  kSpeed,   // the fastest together, so that a slow one holds back few
  kMemory,  // the largest together
  kAlike,   // equal ones first
};

/// As many groups as possible, in the order of the devices' nodes. kAlike bundles the rest by
/// speed.
std::vector<Group> MakeGroups(const SearchTables& tables, int tensor,
                              Bundling bundling = Bundling::kSpeed);

/// All distinct bundlings; none if no node has `tensor` devices.
std::vector<std::vector<Group>> AllBundlings(const SearchTables& tables, int tensor);

/// Groups at least as good as those of any bundling. On each node the i-th fastest group is at
/// least as fast, by the slowness of its slowest member, and no limit is lower.
std::vector<Group> IdealGroups(const SearchTables& tables, int tensor);

}  // namespace adaptive_train
