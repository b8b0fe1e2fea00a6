// Room for messages between stages: enough for every schedule, and no more than 1F1B is planned with.
#include "core/schedule/message_slots.h"

#include <gtest/gtest.h>

#include <map>

#include "core/schedule/passes.h"
#include "schedule_shapes.h"

namespace adaptive_train::message_slots_test {
namespace {

/// Whether all rows end where a send waits for a slot: until the receive so many sends before it is
/// posted. Receives do not wait, what computes waits for its message.
class BoundedRun {
 public:
  explicit BoundedRun(const Schedule& schedule)
      : schedule_(schedule), next_(schedule.ranks.size()) {
    for (int rank = 0; rank < static_cast<int>(next_.size()); ++rank)
      for (const MessageSlots& slots : SlotsOf(schedule, rank)) slots_[{rank, slots.rank}] = slots;
  }

  bool Ends() {
    for (bool moved = true; moved;) {
      moved = false;
      for (int rank = 0; rank < static_cast<int>(next_.size()); ++rank)
        while (Take(rank)) moved = true;
    }
    for (std::size_t rank = 0; rank < next_.size(); ++rank)
      if (next_[rank] < schedule_.ranks[rank].size()) return false;
    return true;
  }
  bool HasRoomForReceived() const { return has_room_; }

 private:
  bool Take(int rank) {
    const auto& row = schedule_.ranks[static_cast<std::size_t>(rank)];
    std::size_t& next = next_[static_cast<std::size_t>(rank)];
    if (next == row.size()) return false;
    const Action& action = row[next];
    const bool forward = action.kind == ActionKind::kForward;
    if (IsSend(action.kind)) {
      const std::pair way{rank, PeerOf(schedule_, action)};
      if (sent_[way] - posted_[way] >= slots_[way].sent) return false;
      ++sent_[way];
    } else if (IsReceive(action.kind)) {
      const std::pair way{PeerOf(schedule_, action), rank};
      ++posted_[way];
      waiting_[{rank, way.first}].push_back(action);
      has_room_ = has_room_ && static_cast<int>(waiting_[{rank, way.first}].size()) <=
                                   slots_[{rank, way.first}].received;
    } else if (forward || MakesInputGradient(action.kind)) {
      const Action receive = ReceiveOf(action);
      const bool inner = forward ? action.stage > 0 : action.stage + 1 < schedule_.stages;
      if (inner && schedule_.ranks.size() > 1) {
        auto& waiting = waiting_[{rank, PeerOf(schedule_, receive)}];
        if (sent_[{PeerOf(schedule_, receive), rank}] <= PlaceOf(rank, receive)) return false;
        std::erase(waiting, receive);
      }
    }
    ++next;
    return true;
  }

  /// How many of the pair's messages come before it.
  int PlaceOf(int rank, const Action& receive) {
    int before = 0;
    for (const Action& action : schedule_.ranks[static_cast<std::size_t>(rank)]) {
      if (action == receive) break;
      if (IsReceive(action.kind) && PeerOf(schedule_, action) == PeerOf(schedule_, receive))
        ++before;
    }
    return before;
  }

  const Schedule& schedule_;
  std::vector<std::size_t> next_;
  std::map<std::pair<int, int>, MessageSlots> slots_;
  std::map<std::pair<int, int>, int> sent_, posted_;
  std::map<std::pair<int, int>, std::vector<Action>> waiting_;
  bool has_room_ = true;
};

TEST(MessageSlots, NoScheduleBlocksWithThem) {
  for (const NamedSchedule& named : AllSchedules()) {
    const Schedule schedule = AddSendsAndReceives(named.schedule);
    BoundedRun run(schedule);
    EXPECT_TRUE(run.Ends()) << named.name;
    EXPECT_TRUE(run.HasRoomForReceived()) << named.name;
  }
}

TEST(MessageSlots, OneForwardOneBackwardNeedsTwoOfEachAtMost) {
  for (const NamedSchedule& named : AllSchedules()) {
    if (named.kind != ScheduleKind::kOneForwardOneBackward) continue;
    const Schedule schedule = AddSendsAndReceives(named.schedule);
    for (int rank = 0; rank < named.shape.ranks; ++rank) {
      for (const MessageSlots& slots : SlotsOf(schedule, rank)) {
        EXPECT_LE(slots.received, 2) << named.name;
        EXPECT_LE(slots.sent, 2) << named.name;
      }
    }
  }
}

/// What FixedShares builds on: from as many micro-batches as ranks on, more need no more room.
TEST(MessageSlots, OneForwardOneBackwardNeedsTheSameRoomForAnyNumberOfMicroBatches) {
  for (int ranks = 2; ranks <= 6; ++ranks) {
    const auto schedule_of = [ranks](int micro_batches) {
      return AddSendsAndReceives(
          ComputeOrder(ScheduleKind::kOneForwardOneBackward, {ranks, 1, micro_batches}).value());
    };
    const Schedule least = schedule_of(ranks);
    for (int micro_batches = ranks + 1; micro_batches <= 4 * ranks; ++micro_batches) {
      const Schedule more = schedule_of(micro_batches);
      for (int rank = 0; rank < ranks; ++rank) {
        const auto row = static_cast<std::size_t>(rank);
        EXPECT_EQ(MostInFlight(more.ranks[row], rank), MostInFlight(least.ranks[row], rank));
        const auto some = SlotsOf(least, rank), others = SlotsOf(more, rank);
        ASSERT_EQ(some.size(), others.size());
        for (std::size_t i = 0; i < some.size(); ++i) {
          EXPECT_EQ(some[i].received, others[i].received);
          EXPECT_EQ(some[i].sent, others[i].sent);
        }
      }
    }
  }
}

}  // namespace
}  // namespace adaptive_train::message_slots_test
