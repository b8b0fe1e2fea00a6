#include "launcher/run/plan_files.h"

#include <cstdio>

#include "launcher/planner/plan_words.h"

namespace adaptive_train {
namespace {

std::string WordsOf(const Plan& plan, const PlanInputs& inputs) {
  return DescribePlan(plan, inputs.cluster, ModelShape::Of(inputs.dims, inputs.format));
}

std::string TextOf(const Plan& plan, const PlanInputs& inputs) {
  return WordsOf(plan, inputs) + ExplainPlan(plan);
}

}  // namespace

Result<void> WritePlan(const RunFolder& folder, const Plan& plan, const PlanInputs& inputs) {
  std::fputs(WordsOf(plan, inputs).c_str(), stdout);
  auto written = folder.Write("plan.json", ToJson(plan));
  if (written) written = folder.Write("plan.txt", TextOf(plan, inputs));
  return written;
}

void WritePlan(FolderWriter& files, const Plan& plan, const PlanInputs& inputs) {
  files.Write("plan.json", ToJson(plan));
  files.Write("plan.txt", TextOf(plan, inputs));
}

}  // namespace adaptive_train
