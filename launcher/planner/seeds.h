// First placements for a shape: groups in several orders, cut by BestCuts.
#pragma once

#include <vector>

#include "launcher/planner/arrangement.h"

namespace adaptive_train {

/// Orders of all groups that are worth trying: by speed, by memory, along the tour of fast links.
/// Made once per number of tensor ranks.
struct GroupOrders {
  std::vector<int> by_speed;   // fastest first; among equals along the tour
  std::vector<int> by_memory;  // largest first
  std::vector<int> by_tour;    // along RingFinder::Tour, fastest first inside a node
};

GroupOrders OrdersOf(SearchTables& tables, const std::vector<Group>& groups);

/// Placements of the arrangement's shape, each different in which groups it takes (the fastest, or
/// the fastest that are neighbours) and in what is alike: the groups of a stage, or those of a
/// replica. If memory allows none of them, one that does not fit.
std::vector<Placement> SeedsOf(SearchTables& tables, const std::vector<Group>& groups,
                               const GroupOrders& orders, const Shape& shape);

}  // namespace adaptive_train
