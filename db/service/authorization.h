// What a caller of adaptive-traind may see and change.
#pragma once

#include <optional>

#include "core/result.h"
#include "db/owner.h"
#include "db/service/caller.h"
#include "db/store_message.h"

namespace adaptive_train {

class Database;

/// The rows that a request may touch.
struct Access {
  Owner owner = 0;                // of what is written, and of the layers that are read
  std::optional<JobsOf> jobs_of;  // which jobs are read; none: everybody's
};

/// Decides on every request, before anything else is asked of the database. Private to their owner
/// and to operators are jobs and all that belongs to them: configuration, run folder, nodes, plans,
/// launches, failures, summary; layer profiles are their owner's alone. A coordinator reads the jobs of
/// his accounts. Everybody sees links' and
/// devices' speeds, and how often nodes and links failed, by kind. Only its owner writes to a job.
/// A job of somebody else and one that is not there are refused with the same words. Throws
/// DatabaseError; call in the transaction of the request.
Result<Access> Authorize(Database& database, const Caller& caller, const StoreRequest& request);

}  // namespace adaptive_train
