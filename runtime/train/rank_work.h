// What a rank's place in the plan makes it do: its layers, its passes, their operations.
#pragma once

#include <vector>

#include "core/config.h"
#include "core/plan.h"
#include "runtime/model/parameter_layout.h"
#include "runtime/train/stage_runner.h"

namespace adaptive_train {

/// Floating-point operations a token of the rank's layers, forward and backward; tensor ranks have
/// equal parts.
double FlopsPerToken(const ModelDims& dims, const Plan& plan, const RankPlan& own);
/// The rank's chunks of the model, ascending.
std::vector<StageSlice> SlicesOf(const ModelDims& dims, const Plan& plan, const RankPlan& own);
/// Whether the rank's backwards come in halves.
bool ComesInHalves(const Plan& plan, const RankPlan& own);
/// The passes of the rank's replica in a step.
Schedule ScheduleOf(const Plan& plan, const RankPlan& own);
/// `slices` are SlicesOf the same rank.
StageWork WorkOf(const Config& config, const Plan& plan, const RankPlan& own,
                 const std::vector<StageSlice>& slices);

}  // namespace adaptive_train
