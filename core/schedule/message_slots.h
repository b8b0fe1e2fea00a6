// How much room a rank needs for the messages between its stages and those of other ranks.
#pragma once

#include <vector>

#include "core/schedule/schedule.h"

namespace adaptive_train {

/// Messages that a rank keeps at the same time for one other rank, at most.
struct MessageSlots {
  int rank = 0;      // the other one
  int received = 0;  // from the receive to the end of the forward or backward that reads it
  int sent = 0;      // from the send until the other rank has it
};

/// The other ranks that `rank` exchanges messages with, ascending. `schedule` has sends and receives
/// and has passed CheckSchedule. A send keeps its slot until its receive is posted. As rows are
/// walked with every action taking a unit of time, the slots suffice for any times: a run in which
/// no buffer overflows shows that none can block the ranks for ever.
std::vector<MessageSlots> SlotsOf(const Schedule& schedule, int rank);

/// The rank at the other end of a send or receive.
int PeerOf(const Schedule& schedule, const Action& message);

/// The receive that brings what a forward or backward reads of another rank.
Action ReceiveOf(const Action& compute);

}  // namespace adaptive_train
