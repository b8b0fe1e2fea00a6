#include "launcher/planner/asked_cuts.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "core/schedule/stage_layout.h"

namespace adaptive_train {

std::vector<int> AskedCuts(const PlanProblem& problem, int stages) {
  const std::vector<int>& asked = problem.choices.cut;
  if (asked.empty()) return {};
  const auto count = static_cast<std::size_t>(stages);
  std::vector<int> cut(count + 1, 0);
  for (std::size_t c = 0; c + 1 < asked.size(); ++c) cut[c % count + 1] += asked[c + 1] - asked[c];
  std::partial_sum(cut.begin(), cut.end(), cut.begin());
  return cut;
}

std::vector<int> NearestCuts(const std::vector<int>& asked, const std::vector<int>& possible,
                             const std::function<bool(const std::vector<int>&)>& fits) {
  int length = 1;
  for (std::size_t c = 0; c < asked.size(); ++c)
    length = std::max(length, std::abs(possible[c] - asked[c]));
  // Rounding in one direction keeps a layer between neighbouring cuts.
  const auto on_way = [&](int steps) {
    std::vector<int> cut = asked;
    for (std::size_t c = 0; c < cut.size(); ++c)
      cut[c] += static_cast<int>(
          std::floor(static_cast<double>(steps) * (possible[c] - asked[c]) / length + 0.5));
    return cut;
  };
  int fails = 0, good = length;
  while (good - fails > 1) {
    const int middle = fails + (good - fails) / 2;
    (fits(on_way(middle)) ? good : fails) = middle;
  }
  return on_way(good);
}

std::string LayoutSetting(const std::vector<int>& cut) {
  std::vector<StageLayers> chunks;
  for (std::size_t c = 0; c + 1 < cut.size(); ++c) chunks.push_back({cut[c], cut[c + 1]});
  return fmt::format("parallel.layout = \"{}\"", ToText(chunks));
}

}  // namespace adaptive_train
