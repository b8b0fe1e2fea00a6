// How people name a job: 1234, 1230_4, L12.
#pragma once

#include <string>

#include "core/result.h"
#include "db/records.h"

namespace adaptive_train {

/// Parses the id of a Slurm job, of an array, of an array's task, or of a local run.
Result<JobKey> ParseJobKey(const std::string& word);

}  // namespace adaptive_train
