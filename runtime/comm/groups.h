// The groups of one rank.
#pragma once

#include "core/plan.h"
#include "runtime/comm/communicator.h"
#include "runtime/comm/group.h"

namespace adaptive_train {

/// Derived from the plan alone, in the same way on all ranks. The communicator must outlive them.
struct Groups {
  Groups(Communicator& communicator, const Plan& plan);

  Group& world;
  Group data, tensor, pipeline, embedding_head;

 private:
  Groups(Communicator& communicator, GroupMembers members);
};

}  // namespace adaptive_train
