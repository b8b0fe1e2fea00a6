// First placements for a shape: groups in several orders, cut by BestCuts.
#pragma once

#include <vector>

#include "launcher/planner/arrangement.h"

namespace adaptive_train {

/// Useful orders of all groups: by speed, by memory, along the tour of fast links. Made once per
/// number of tensor ranks.
struct GroupOrders {
  std::vector<int> by_speed;   // fastest first; among equals along the tour
  std::vector<int> by_memory;  // largest first
  std::vector<int> by_tour;    // along RingFinder::Tour, fastest first inside a node
};

GroupOrders OrdersOf(SearchTables& tables, const std::vector<Group>& groups);

/// Distinct placements of the arrangement's shape. They differ in the groups taken (the fastest, or
/// the fastest neighbours) and in what is similar: the groups of a stage, or those of a replica. If
/// memory allows none, one placement that does not fit.
std::vector<Placement> SeedsOf(SearchTables& tables, const std::vector<Group>& groups,
                               const GroupOrders& orders, const Shape& shape);

}  // namespace adaptive_train
