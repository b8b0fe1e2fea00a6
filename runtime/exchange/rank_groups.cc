#include "runtime/exchange/rank_groups.h"

#include <algorithm>
#include <numeric>

namespace adaptive_train {

RankGroups RankGroups::Of(const std::vector<std::vector<int>>& nodes, int rank, int ranks) {
  RankGroups groups;
  if (nodes.empty()) {
    groups.all.resize(static_cast<std::size_t>(ranks));
    std::iota(groups.all.begin(), groups.all.end(), 0);
    return groups;
  }
  const auto has_own = [&](const std::vector<int>& some) {
    return std::ranges::count(some, rank) > 0;
  };
  groups.places.resize(nodes.front().size());
  for (std::size_t place = 0; place < groups.places.size(); ++place) {
    std::vector<int>& of_place = groups.places[place];
    for (const std::vector<int>& node : nodes) of_place.push_back(node[place]);
    groups.all.insert(groups.all.end(), of_place.begin(), of_place.end());
  }
  groups.inside = *std::ranges::find_if(nodes, has_own);
  groups.between = *std::ranges::find_if(groups.places, has_own);
  return groups;
}

}  // namespace adaptive_train
