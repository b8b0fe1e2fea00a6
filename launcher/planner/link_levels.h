// Which groups can be in one ring whose links all have at least a given speed.
#pragma once

#include <vector>

#include "launcher/planner/groups.h"
#include "launcher/planner/search_tables.h"

namespace adaptive_train {

/// Groups that are connected by links of at least the level's bandwidth.
struct Island {
  int groups = 0;
  std::vector<int> members;  // how many of each kind of group; the caller's numbering
};

/// Rings whose slowest link is between two levels.
struct LinkLevel {
  RingSpeed best;  // no ring of this level is faster
  std::vector<Island> islands;
  int largest = 0;  // groups of the largest island
};

/// Levels from slow to fast, a few dozen at most; every ring belongs to one of them.
class LinkLevels {
 public:
  /// `kind_of[group]` in [0, kinds).
  LinkLevels(const LinkTable& links, const std::vector<Group>& groups,
             const std::vector<int>& kind_of, int kinds);

  const std::vector<LinkLevel>& Levels() const { return levels_; }
  /// No ring of this many groups is faster; bandwidth 0 if there is none.
  RingSpeed BestRing(int members) const;

 private:
  std::vector<LinkLevel> levels_;
};

}  // namespace adaptive_train
