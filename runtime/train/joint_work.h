// Work that every rank does a part of, such as reading a checkpoint: all learn how it ended.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <string>

#include "core/result.h"
#include "runtime/comm/group.h"

namespace adaptive_train {

/// A part of the work. It counts what it has done, in whatever unit, so that others see it move. A
/// copy of it runs, beyond DoJointly where that gives up: it owns or shares what it refers to, but
/// for what lives until the process ends.
using WorkPart = std::function<Result<void>(std::atomic<std::int64_t>& done)>;

/// Does this rank's part on a thread of its own and returns when all ranks have done theirs: the
/// same on all ranks, an error of the lowest rank that has one. All ranks call it. Throws FatalError
/// where communication fails, or where no rank's part has moved for `patience`; `what` names the
/// work there. The part then still runs: the process must end. Blocks.
Result<void> DoJointly(Group& group, std::chrono::seconds patience, const std::string& what,
                       const WorkPart& part);

}  // namespace adaptive_train
