#include "core/schedule/compute_order.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "core/limits.h"

namespace adaptive_train {
namespace {

using enum ActionKind;

constexpr std::array<std::string_view, 6> kNames{"gpipe", "1f1b",          "interleaved",
                                                 "zb-h1", "breadth-first", "pipedream-2bw"};
constexpr std::int64_t kMostActions = 1'000'000'000;

/// The first `ahead` forwards, then one forward and one backward in turn, then what backwards are
/// left. Both lists are in the order of the rank's computing.
std::vector<Action> Alternating(const std::vector<Action>& forwards,
                                const std::vector<Action>& backwards, int ahead) {
  const std::size_t first = std::min(forwards.size(), static_cast<std::size_t>(ahead));
  std::vector<Action> row(forwards.begin(), forwards.begin() + static_cast<std::ptrdiff_t>(first));
  for (std::size_t i = first; i < forwards.size(); ++i) {
    row.push_back(forwards[i]);
    row.push_back(backwards[i - first]);
  }
  row.insert(row.end(), backwards.end() - static_cast<std::ptrdiff_t>(first), backwards.end());
  return row;
}

std::vector<Action> InTurn(int stage, ActionKind kind, int micro_batches) {
  std::vector<Action> row;
  row.reserve(static_cast<std::size_t>(micro_batches));
  for (int i = 0; i < micro_batches; ++i) row.push_back({stage, kind, i});
  return row;
}

std::vector<Action> OneForwardOneBackwardRow(const ScheduleShape& shape, int rank) {
  return Alternating(InTurn(rank, kForward, shape.micro_batches),
                     InTurn(rank, kBackward, shape.micro_batches), shape.ranks - 1 - rank);
}

/// A forward of the step after the next needs the update of this one, so that no rank is more than
/// a step's micro-batches ahead.
std::vector<Action> PipeDream2BwRow(const ScheduleShape& shape, int rank) {
  const int all = shape.micro_batches * shape.steps;
  return Alternating(InTurn(rank, kForward, all), InTurn(rank, kBackward, all),
                     std::min(shape.ranks - 1 - rank, shape.micro_batches));
}

std::vector<Action> BreadthFirstRow(const ScheduleShape& shape, int rank) {
  std::vector<Action> row;
  for (int chunk = 0; chunk < shape.chunks; ++chunk) {
    const auto forwards = InTurn(chunk * shape.ranks + rank, kForward, shape.micro_batches);
    row.insert(row.end(), forwards.begin(), forwards.end());
  }
  for (int chunk = shape.chunks - 1; chunk >= 0; --chunk) {
    const auto backwards = InTurn(chunk * shape.ranks + rank, kBackward, shape.micro_batches);
    row.insert(row.end(), backwards.begin(), backwards.end());
  }
  return row;
}

/// Micro-batches go through a rank's chunks in groups: as many as ranks, where ranks divides their
/// number, otherwise somewhat more, evenly; a single group where there are fewer.
int GroupCount(const ScheduleShape& shape) {
  return std::max(1, shape.micro_batches / shape.ranks);
}
int GroupBegin(const ScheduleShape& shape, int group) {
  const int groups = GroupCount(shape), size = shape.micro_batches / groups;
  return group * size + std::min(group, shape.micro_batches % groups);
}

std::vector<Action> InterleavedRow(const ScheduleShape& shape, int rank) {
  std::vector<Action> forwards, backwards;
  for (int group = 0; group < GroupCount(shape); ++group) {
    for (int chunk = 0; chunk < shape.chunks; ++chunk) {
      for (int i = GroupBegin(shape, group); i < GroupBegin(shape, group + 1); ++i) {
        forwards.push_back({chunk * shape.ranks + rank, kForward, i});
        backwards.push_back({(shape.chunks - 1 - chunk) * shape.ranks + rank, kBackward, i});
      }
    }
  }
  if (shape.chunks == 1) return Alternating(forwards, backwards, shape.ranks - 1 - rank);
  const int ahead = 2 * (shape.ranks - 1 - rank) + (shape.chunks - 1) * GroupBegin(shape, 1);
  return Alternating(forwards, backwards, ahead);
}

/// As 1F1B, but the weights' gradients of a micro-batch follow `rank` micro-batches after its
/// input's: as many activations on every rank as 1F1B has on the first.
std::vector<Action> ZeroBubbleH1Row(const ScheduleShape& shape, int rank) {
  std::vector<Action> row;
  for (const Action& action : OneForwardOneBackwardRow(shape, rank)) {
    if (action.kind == kForward) {
      row.push_back(action);
      continue;
    }
    row.push_back({rank, kBackwardInput, action.micro_batch});
    if (action.micro_batch >= rank)
      row.push_back({rank, kBackwardWeight, action.micro_batch - rank});
  }
  for (int i = std::max(0, shape.micro_batches - rank); i < shape.micro_batches; ++i)
    row.push_back({rank, kBackwardWeight, i});
  return row;
}

std::vector<Action> RowOf(ScheduleKind kind, const ScheduleShape& shape, int rank) {
  switch (kind) {
    case ScheduleKind::kOneForwardOneBackward:
      return OneForwardOneBackwardRow(shape, rank);
    case ScheduleKind::kInterleaved:
      return InterleavedRow(shape, rank);
    case ScheduleKind::kZeroBubbleH1:
      return ZeroBubbleH1Row(shape, rank);
    case ScheduleKind::kPipeDream2Bw:
      return PipeDream2BwRow(shape, rank);
    case ScheduleKind::kGPipe:
    case ScheduleKind::kBreadthFirst:
      break;
  }
  return BreadthFirstRow(shape, rank);
}

Result<void> CheckShape(ScheduleKind kind, const ScheduleShape& shape) {
  const std::string name = NameOf(kind);
  if (shape.ranks < 1 || shape.chunks < 1 || shape.micro_batches < 1 || shape.steps < 1)
    return Fail(
        fmt::format("{} with {} ranks, {} chunks, {} micro-batches, {} steps: 1 or more "
                    "of each are needed",
                    name, shape.ranks, shape.chunks, shape.micro_batches, shape.steps));
  if (shape.chunks > 1 && kind != ScheduleKind::kInterleaved && kind != ScheduleKind::kBreadthFirst)
    return Fail(
        fmt::format("{} with {} chunks per rank: only interleaved and breadth-first have "
                    "more than one",
                    name, shape.chunks));
  if (shape.steps > 1 && kind != ScheduleKind::kPipeDream2Bw)
    return Fail(fmt::format("{} over {} steps: only pipedream-2bw goes on without a flush", name,
                            shape.steps));
  const std::int64_t most = kMostActions / shape.micro_batches / shape.steps / shape.chunks;
  if (shape.ranks > static_cast<int>(kMostRanks) || shape.ranks > most)
    return Fail(fmt::format(
        "{} with {} ranks, {} chunks, {} micro-batches: at most {} ranks and "
        "{} forwards",
        name, shape.ranks, shape.chunks, shape.micro_batches, kMostRanks, kMostActions));
  return {};
}

}  // namespace

template <>
std::span<const std::string_view> NamesOf<ScheduleKind>() {
  return kNames;
}

Result<Schedule> ComputeOrder(ScheduleKind kind, const ScheduleShape& shape) {
  if (const auto fits = CheckShape(kind, shape); !fits) return tl::unexpected<Error>(fits.error());
  Schedule schedule{.stages = shape.ranks * shape.chunks,
                    .micro_batches = shape.micro_batches * shape.steps,
                    .ranks = {}};
  schedule.ranks.reserve(static_cast<std::size_t>(shape.ranks));
  for (int rank = 0; rank < shape.ranks; ++rank) schedule.ranks.push_back(RowOf(kind, shape, rank));
  return schedule;
}

}  // namespace adaptive_train
