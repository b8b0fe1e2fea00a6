// A run's plan as people and ranks find it in the run folder: plan.txt and plan.json.
#pragma once

#include <string>

#include "core/plan.h"
#include "core/result.h"
#include "launcher/run/folder_writer.h"
#include "launcher/run/plan_inputs.h"
#include "launcher/run/run_folder.h"

namespace adaptive_train {

/// Prints the plan and writes plan.json, which the ranks read, and plan.txt.
Result<void> WritePlan(const RunFolder& folder, const Plan& plan, const PlanInputs& inputs);

/// Writes both again, beside the run.
void WritePlan(FolderWriter& files, const Plan& plan, const PlanInputs& inputs);

}  // namespace adaptive_train
