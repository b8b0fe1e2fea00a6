// A fault for tests: rank 1's gradients count for nothing. Linked in place of
// Group::AllReduce.
#include <algorithm>
#include <span>

#include "runtime/comm/group.h"

namespace adaptive_train {

// A member function is called like a free one whose first parameter is the object.
Request RealAllReduce(Group* group, Purpose purpose,
                      std::span<float> data) asm("__real_" ALL_REDUCE);
Request FakeAllReduce(Group* group, Purpose purpose,
                      std::span<float> data) asm("__wrap_" ALL_REDUCE);

Request FakeAllReduce(Group* group, Purpose purpose, std::span<float> data) {
  if (purpose == Purpose::kGradient && group->Rank() == 1)
    std::fill(data.begin(), data.end(), 0.0f);
  return RealAllReduce(group, purpose, data);
}

}  // namespace adaptive_train
