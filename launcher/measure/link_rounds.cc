#include "launcher/measure/link_rounds.h"

#include <algorithm>
#include <cstddef>
#include <set>

namespace adaptive_train {

MeasureRounds AllPairs(int nodes) {
  if (nodes < 2) return {};
  const int seats = nodes + nodes % 2;  // an odd number adds an empty seat
  MeasureRounds rounds(static_cast<std::size_t>(seats - 1));
  for (int r = 0; r < seats - 1; ++r) {
    for (int i = 0; i < seats / 2; ++i) {
      const int a = i == 0 ? seats - 1 : (r + i) % (seats - 1);
      const int b = i == 0 ? r : (r - i + seats - 1) % (seats - 1);
      if (a < nodes && b < nodes)
        rounds[static_cast<std::size_t>(r)].emplace_back(std::min(a, b), std::max(a, b));
    }
  }
  return rounds;
}

MeasureRounds RoundsOf(const std::vector<RankPair>& pairs) {
  MeasureRounds rounds;
  std::vector<std::set<int>> busy;
  for (const auto& [a, b] : std::set<RankPair>(pairs.begin(), pairs.end())) {
    std::size_t r = 0;
    while (r < rounds.size() && (busy[r].count(a) != 0 || busy[r].count(b) != 0)) ++r;
    if (r == rounds.size()) {
      rounds.emplace_back();
      busy.emplace_back();
    }
    rounds[r].emplace_back(a, b);
    busy[r].insert({a, b});
  }
  return rounds;
}

}  // namespace adaptive_train
