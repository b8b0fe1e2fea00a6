#include "core/schedule/dry_run.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>

#include "core/schedule/action_table.h"

namespace adaptive_train {
namespace {

using enum ActionKind;

constexpr int kColumnsAround = 6;
constexpr int kRowsAround = 8;

bool Inside(const Schedule& schedule, const Action& action) {
  return action.stage >= 0 && action.stage < schedule.stages && action.micro_batch >= 0 &&
         action.micro_batch < schedule.micro_batches;
}

bool AllInside(const Schedule& schedule) {
  for (const auto& row : schedule.ranks)
    for (const Action& action : row)
      if (!Inside(schedule, action)) return false;
  return true;
}

/// Columns of the grid: the dry run's, and behind them what it does not reach. Of a schedule that
/// names stages or micro-batches which are not there: the place in the row.
std::vector<std::vector<int>> ColumnsOf(const Schedule& schedule) {
  std::vector<std::vector<int>> columns;
  if (AllInside(schedule)) {
    columns = DryRun(schedule);
  } else {
    for (const auto& row : schedule.ranks) columns.emplace_back(row.size(), -1);
  }
  for (auto& row : columns) {
    for (std::size_t i = 0; i < row.size(); ++i)
      if (row[i] < 0) row[i] = i == 0 ? 0 : row[i - 1] + 1;
  }
  return columns;
}

/// The rows and columns that are shown: [first, end).
struct Window {
  int first_rank, end_rank, first_column, end_column;
};

class GridText {
 public:
  GridText(const Schedule& schedule, const SchedulePlace& place)
      : schedule_(schedule), place_(place), columns_(ColumnsOf(schedule)) {
    const auto& row = columns_[static_cast<std::size_t>(place.rank)];
    const int at = place.index < static_cast<int>(row.size())
                       ? row[static_cast<std::size_t>(place.index)]
                       : (row.empty() ? 0 : row.back() + 1);
    const int ranks = static_cast<int>(schedule.ranks.size());
    window_ = {std::max(0, place.rank - kRowsAround), std::min(ranks, place.rank + kRowsAround + 1),
               std::max(0, at - kColumnsAround), at + kColumnsAround + 1};
    for (int rank = window_.first_rank; rank < window_.end_rank; ++rank) CollectCells(rank, at);
  }

  std::string Draw() const {
    std::string text = fmt::format("{:>9}", "time");
    for (std::size_t c = 0; c < widths_.size(); ++c)
      if (widths_[c] > 0)
        fmt::format_to(std::back_inserter(text), "  {:<{}}",
                       window_.first_column + static_cast<int>(c), widths_[c]);
    for (std::size_t r = 0; r < cells_.size(); ++r) {
      text = Trimmed(std::move(text)) +
             fmt::format("\nrank {:>4}", window_.first_rank + static_cast<int>(r));
      for (std::size_t c = 0; c < widths_.size(); ++c)
        if (widths_[c] > 0)
          fmt::format_to(std::back_inserter(text), "  {:<{}}", cells_[r][c], widths_[c]);
    }
    return Trimmed(std::move(text)) + "\n";
  }

 private:
  static std::string Trimmed(std::string text) {
    text.erase(text.find_last_not_of(' ') + 1);
    return text;
  }

  void CollectCells(int rank, int place_column) {
    const auto r = static_cast<std::size_t>(rank);
    std::vector<std::string> cells(
        static_cast<std::size_t>(window_.end_column - window_.first_column));
    widths_.resize(cells.size());
    const auto put = [&](int column, std::string cell) {
      if (column < window_.first_column || column >= window_.end_column) return;
      const auto c = static_cast<std::size_t>(column - window_.first_column);
      widths_[c] = std::max(widths_[c], cell.size());
      cells[c] = std::move(cell);
    };
    for (std::size_t i = 0; i < schedule_.ranks[r].size(); ++i) {
      const bool here = rank == place_.rank && static_cast<int>(i) == place_.index;
      put(columns_[r][i], ToText(schedule_.ranks[r][i]) + (here ? " <-- here" : ""));
    }
    if (rank == place_.rank && place_.index >= static_cast<int>(schedule_.ranks[r].size()))
      put(place_column, "<-- here");
    cells_.push_back(std::move(cells));
  }

  const Schedule& schedule_;
  const SchedulePlace place_;
  const std::vector<std::vector<int>> columns_;
  Window window_{};
  std::vector<std::vector<std::string>> cells_;  // of the window
  std::vector<std::size_t> widths_;              // of its columns; 0: nothing in it
};

}  // namespace

bool HasSends(const Schedule& schedule) {
  for (const auto& row : schedule.ranks)
    for (const Action& action : row)
      if (IsSend(action.kind)) return true;
  return false;
}

std::optional<Action> InputOf(const Schedule& schedule, const Action& action, bool has_sends) {
  const bool forward = action.kind == kForward;
  if (!forward && !MakesInputGradient(action.kind)) return std::nullopt;
  const int neighbour = action.stage + (forward ? -1 : 1);
  if (neighbour < 0 || neighbour >= schedule.stages) return std::nullopt;
  const bool sent = has_sends && schedule.RankOf(neighbour) != schedule.RankOf(action.stage);
  if (forward) return Action{neighbour, sent ? kSendForward : kForward, action.micro_batch};
  return Action{neighbour, sent ? kSendBackward : kBackwardInput, action.micro_batch};
}

std::vector<std::vector<int>> DryRun(const Schedule& schedule) {
  const bool has_sends = HasSends(schedule);
  ActionTable<int> times(schedule, -1);
  std::vector<std::vector<int>> columns;
  for (const auto& row : schedule.ranks) columns.emplace_back(row.size(), -1);
  std::vector<std::size_t> next(schedule.ranks.size(), 0);
  for (bool moved = true; moved;) {
    moved = false;
    for (std::size_t rank = 0; rank < next.size(); ++rank) {
      const std::vector<Action>& row = schedule.ranks[rank];
      for (; next[rank] < row.size(); ++next[rank]) {
        const Action& action = row[next[rank]];
        const auto input = InputOf(schedule, action, has_sends);
        const int ready = input ? times.At(*input) + 1 : 0;
        if (input && ready == 0) break;
        const int free = next[rank] == 0 ? 0 : columns[rank][next[rank] - 1] + 1;
        columns[rank][next[rank]] = times.At(action) = std::max(ready, free);
        moved = true;
      }
    }
  }
  return columns;
}

std::string ScheduleGrid(const Schedule& schedule, const SchedulePlace& place) {
  if (schedule.ranks.empty()) return "";
  return GridText(schedule, place).Draw();
}

}  // namespace adaptive_train
