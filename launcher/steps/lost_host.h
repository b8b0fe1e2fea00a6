// What becomes of a job whose batch host is lost: under --no-kill Slurm leaves it without a script.
#pragma once

#include <cstdint>
#include <string>

namespace adaptive_train {

/// The body of `adaptive-train requeue-lost`, which a rank becomes when it has lost its launcher on
/// `host`: asks Slurm to requeue the job once Slurm itself sees that host down or silent. Ends when
/// that is done, when the job does not run any more, or after a quarter of an hour in which the host
/// lived: then whoever holds the job decides. Prints what it does. Returns an exit code. Blocks.
int RequeueIfLost(std::int64_t job_id, const std::string& host);

/// Whether the output of `scontrol show node -o` shows a node that is down or does not answer.
bool ShowsLostNode(const std::string& shown);

}  // namespace adaptive_train
