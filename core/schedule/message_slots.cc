#include "core/schedule/message_slots.h"

#include <algorithm>
#include <map>

#include "core/schedule/dry_run.h"

namespace adaptive_train {
namespace {

using enum ActionKind;

/// One message is filled while another one is on its way.
constexpr int kLeastSent = 2;

/// Adds up changes in the order of their times, additions of a time before its removals.
int MostAtOnce(std::vector<std::pair<int, int>> changes) {
  std::sort(changes.begin(), changes.end(), [](const auto& a, const auto& b) {
    return a.first != b.first ? a.first < b.first : a.second > b.second;
  });
  int now = 0, most = 0;
  for (const auto& [time, change] : changes) most = std::max(most, now += change);
  return most;
}

bool Reads(const Action& action) {
  return action.kind == kForward || MakesInputGradient(action.kind);
}

}  // namespace

int PeerOf(const Schedule& schedule, const Action& message) {
  const bool up = message.kind == kSendForward || message.kind == kReceiveBackward;
  return schedule.RankOf(message.stage + (up ? 1 : -1));
}

Action ReceiveOf(const Action& compute) {
  return {compute.stage, compute.kind == kForward ? kReceiveForward : kReceiveBackward,
          compute.micro_batch};
}

std::vector<MessageSlots> SlotsOf(const Schedule& schedule, int rank) {
  using Changes = std::map<int, std::vector<std::pair<int, int>>>;  // of each other rank
  const auto columns = DryRun(schedule);
  Changes received, sent;
  for (int of = 0; of < static_cast<int>(schedule.ranks.size()); ++of) {
    const auto& row = schedule.ranks[static_cast<std::size_t>(of)];
    for (std::size_t i = 0; i < row.size(); ++i) {
      const int time = columns[static_cast<std::size_t>(of)][i];
      if (IsSend(row[i].kind) && of == rank) sent[PeerOf(schedule, row[i])].push_back({time, 1});
      if (!IsReceive(row[i].kind)) continue;
      const int peer = PeerOf(schedule, row[i]);
      if (peer == rank) sent[of].push_back({time, -1});
      if (of != rank) continue;
      received[peer].push_back({time, 1});
      const auto reader = std::find_if(row.begin(), row.end(), [&](const Action& action) {
        return Reads(action) && ReceiveOf(action) == row[i];
      });
      const auto at = static_cast<std::size_t>(reader - row.begin());
      received[peer].push_back({columns[static_cast<std::size_t>(of)][at], -1});
    }
  }
  std::vector<MessageSlots> slots;
  for (auto& [peer, changes] : received) slots.push_back({peer, MostAtOnce(std::move(changes)), 0});
  for (auto& [peer, changes] : sent) {
    auto at = std::find_if(slots.begin(), slots.end(),
                           [&](const MessageSlots& some) { return some.rank == peer; });
    if (at == slots.end()) at = slots.insert(slots.end(), {peer, 0, 0});
    at->sent = std::max(kLeastSent, MostAtOnce(std::move(changes)));
  }
  std::sort(slots.begin(), slots.end(),
            [](const MessageSlots& a, const MessageSlots& b) { return a.rank < b.rank; });
  return slots;
}

}  // namespace adaptive_train
