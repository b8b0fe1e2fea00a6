#include "runtime/buddy/inventory.h"

#include <algorithm>
#include <functional>
#include <map>
#include <optional>
#include <utility>

namespace adaptive_train {
namespace {

using Places = std::map<std::int64_t, FoundShard>;
using Covers = std::map<int, Places>;

/// What was found of one step of one attempt.
struct OfStep {
  std::map<int, Covers> state;      // by arena
  std::map<int, Places> residuals;  // by arena
  KeptEntry any;
};

void Add(Places& places, const KeptEntry& entry, int holder) {
  FoundShard& shard = places[entry.part.place];
  shard.entry = entry;
  shard.holders.push_back(holder);
}

/// Appends the parts of a set of places; false where one is missing.
bool AppendAll(const Places& places, std::vector<FoundShard>& shards) {
  const std::int64_t wanted = places.empty() ? 0 : places.begin()->second.entry.part.places;
  std::int64_t next = 0;
  for (const auto& [place, shard] : places) {
    if (place != next || shard.entry.part.places != wanted) return false;
    ++next;
  }
  if (next == 0 || next != wanted) return false;
  for (const auto& [place, shard] : places) shards.push_back(shard);
  return true;
}

bool AppendOneOf(const Covers& covers, std::vector<FoundShard>& shards) {
  return std::any_of(covers.begin(), covers.end(),
                     [&](const auto& cover) { return AppendAll(cover.second, shards); });
}

std::optional<std::vector<FoundShard>> ShardsOf(const OfStep& found) {
  std::vector<FoundShard> shards;
  const auto arenas = static_cast<std::size_t>(found.any.arenas);
  if (found.state.size() != arenas) return std::nullopt;
  for (const auto& [arena, covers] : found.state)
    if (!AppendOneOf(covers, shards)) return std::nullopt;
  if (!found.any.residuals) return shards;
  if (found.residuals.size() != arenas) return std::nullopt;
  for (const auto& [arena, places] : found.residuals)
    if (!AppendAll(places, shards)) return std::nullopt;
  return shards;
}

}  // namespace

std::vector<FoundState> CompleteStates(const std::vector<std::vector<KeptEntry>>& of) {
  std::map<std::pair<std::int64_t, std::int64_t>, OfStep, std::greater<>> steps;
  for (std::size_t rank = 0; rank < of.size(); ++rank) {
    for (const KeptEntry& entry : of[rank]) {
      OfStep& step = steps[{entry.attempt, entry.step}];
      step.any = entry;
      const int holder = static_cast<int>(rank);
      if (entry.kind == KeptKind::kState) {
        Add(step.state[entry.part.arena_of][entry.part.cover], entry, holder);
      } else {
        Add(step.residuals[entry.part.arena_of], entry, holder);
      }
    }
  }
  std::vector<FoundState> states;
  for (const auto& [at, found] : steps)
    if (auto shards = ShardsOf(found)) states.push_back({at.first, at.second, std::move(*shards)});
  return states;
}

std::vector<FoundState> InTurn(std::vector<FoundState> states, std::int64_t committed) {
  const auto newer =
      std::stable_partition(states.begin(), states.end(),
                            [&](const FoundState& state) { return state.step <= committed; });
  std::sort(newer, states.end(), [](const FoundState& a, const FoundState& b) {
    return a.attempt != b.attempt ? a.attempt > b.attempt : a.step < b.step;
  });
  return states;
}

}  // namespace adaptive_train
