#include "runtime/checkpoint/checkpoint_tiling.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <map>
#include <optional>
#include <tuple>
#include <utility>

#include "core/file_io.h"

namespace adaptive_train {
namespace {

using Pair = std::pair<HeldRectangle, HeldRectangle>;

/// Two that overlap, or none. Goes through the rows and keeps the columns that are in use.
std::optional<Pair> Overlap(std::vector<HeldRectangle>& rectangles) {
  std::sort(rectangles.begin(), rectangles.end(), [](const auto& a, const auto& b) {
    return std::tie(a.rows.begin, a.columns.begin, a.shard) <
           std::tie(b.rows.begin, b.columns.begin, b.shard);
  });
  std::map<std::int64_t, const HeldRectangle*> in_use;  // by their first column
  std::multimap<std::int64_t, std::int64_t> ends;       // the row after the last, first column
  for (const HeldRectangle& rectangle : rectangles) {
    for (; !ends.empty() && ends.begin()->first <= rectangle.rows.begin; ends.erase(ends.begin()))
      in_use.erase(ends.begin()->second);
    const auto next = in_use.lower_bound(rectangle.columns.begin);
    if (next != in_use.end() && next->first < rectangle.columns.end)
      return Pair{*next->second, rectangle};
    if (next != in_use.begin() && std::prev(next)->second->columns.end > rectangle.columns.begin)
      return Pair{*std::prev(next)->second, rectangle};
    in_use.emplace(rectangle.columns.begin, &rectangle);
    ends.emplace(rectangle.rows.end, rectangle.columns.begin);
  }
  return std::nullopt;
}

ElementRange Both(const ElementRange& a, const ElementRange& b) {
  return {std::max(a.begin, b.begin), std::min(a.end, b.end)};
}

std::string InWords(const CheckpointParameter& parameter, const HeldRectangle& held) {
  if (parameter.shape.size() < 2)
    return fmt::format("elements [{}, {})", held.columns.begin, held.columns.end);
  return fmt::format("rows [{}, {}) of columns [{}, {})", held.rows.begin, held.rows.end,
                     held.columns.begin, held.columns.end);
}

tl::unexpected<Error> FailTwice(const std::string& of, const CheckpointParameter& parameter,
                                const Pair& pair) {
  const auto& [first, second] = pair;
  const HeldRectangle both{Both(first.rows, second.rows), Both(first.columns, second.columns)};
  return Fail(
      fmt::format("{}{}: {} are in {} and again in {}", of, Printable(parameter.name),
                  InWords(parameter, both), ShardName(first.shard), ShardName(second.shard)),
      ExitCode::kRankFailure);
}

}  // namespace

Result<void> CheckNoneTwice(const std::vector<CheckpointParameter>& parameters,
                            HeldRectangles& held, const std::string& of) {
  for (std::size_t i = 0; i < parameters.size(); ++i)
    if (const auto pair = Overlap(held[i])) return FailTwice(of, parameters[i], *pair);
  return {};
}

Result<void> CheckTiled(const std::vector<CheckpointParameter>& parameters, HeldRectangles& held,
                        const std::string& of) {
  auto once = CheckNoneTwice(parameters, held, of);
  if (!once) return once;
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    std::int64_t missing = parameters[i].count;
    for (const HeldRectangle& rectangle : held[i]) missing -= rectangle.size();
    if (missing == 0) continue;
    return Fail(fmt::format("{}{}: {} of {} elements are in no shard", of,
                            Printable(parameters[i].name), missing, parameters[i].count),
                ExitCode::kRankFailure);
  }
  return {};
}

}  // namespace adaptive_train
