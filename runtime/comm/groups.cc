#include "runtime/comm/groups.h"

#include <utility>

namespace adaptive_train {

Groups::Groups(Communicator& communicator, const Plan& plan)
    : Groups(communicator, GroupsOf(plan, communicator.Rank())) {}

Groups::Groups(Communicator& communicator, GroupMembers members)
    : world(communicator.World()),
      data(communicator, GroupKind::kData, std::move(members.data)),
      tensor(communicator, GroupKind::kTensor, std::move(members.tensor)),
      pipeline(communicator, GroupKind::kPipeline, std::move(members.pipeline)),
      embedding_head(communicator, GroupKind::kEmbeddingHead, std::move(members.embedding_head)) {}

}  // namespace adaptive_train
