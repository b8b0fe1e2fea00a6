// What failures say about nodes and links, from those of all jobs in an open database.
#pragma once

#include <vector>

#include "core/profile.h"
#include "db/owner.h"
#include "db/presence.h"
#include "db/profile_store.h"

namespace adaptive_train {

class Database;

struct FailureHistories {
  std::vector<NodeHistory> nodes;
  std::vector<LinkHistory> links;
};

/// The failures that count against one of the query's nodes, or a link between two of them,
/// weighted less the older they are. The reader's own count. Others' count if jobs of
/// kConfirmingUsers users failed there, and each of them no more, and no heavier, than the median
/// user's: one user alone blames no node for others. `presence` says whose reports count at all. An
/// outage (db/outages.h) counts for everybody, unless a failure that counts is of its time.
/// Failures of the future have to be kept out before. Throws DatabaseError; must be called
/// inside a transaction.
FailureHistories ReadHistories(Database& database, Owner reader, const ProfileQuery& query,
                               Presence& presence);

}  // namespace adaptive_train
