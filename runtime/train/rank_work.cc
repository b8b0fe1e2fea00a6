#include "runtime/train/rank_work.h"

#include "core/model_shape.h"
#include "core/schedule/passes.h"

namespace adaptive_train {
namespace {

const StagePlan& StageOf(const Plan& plan, const RankPlan& own) {
  return plan.stages[static_cast<std::size_t>(own.stage)];
}

}  // namespace

double FlopsPerToken(const ModelDims& dims, const Plan& plan, const RankPlan& own) {
  const ModelShape shape = ModelShape::Of(dims);
  double flops = 0;
  for (const StageLayers& chunk : StageOf(plan, own).chunks)
    for (int layer = chunk.first_layer; layer < chunk.end_layer; ++layer)
      flops += 3 * shape.layers[static_cast<std::size_t>(layer)].forward_flops_per_token;
  return flops / plan.tensor;
}

std::vector<StageSlice> SlicesOf(const ModelDims& dims, const Plan& plan, const RankPlan& own) {
  std::vector<StageSlice> slices;
  for (const StageLayers& chunk : StageOf(plan, own).chunks)
    slices.push_back(StageSlice::OfLayers(dims, chunk.first_layer, chunk.end_layer));
  return slices;
}

bool ComesInHalves(const Plan& plan, const RankPlan& own) {
  const Schedule schedule = OrderOf(plan, own.replica);
  return HasHalves(schedule.ranks[static_cast<std::size_t>(own.stage)]);
}

Schedule ScheduleOf(const Plan& plan, const RankPlan& own) {
  const int steps = StepsOf(plan.schedule);
  return WithPasses(OrderOf(plan, own.replica, steps), {.reduce = true, .steps = steps});
}

StageWork WorkOf(const Config& config, const Plan& plan, const RankPlan& own,
                 const std::vector<StageSlice>& slices) {
  const ModelDims dims = DimsOf(config.model);
  return {.dims = PartOf(dims, {own.tensor_rank, plan.tensor}),
          .options = {.micro_batch = own.micro_batch,
                      .recompute = plan.recompute,
                      .dropout = config.train.dropout,
                      .seed = static_cast<std::uint64_t>(config.train.seed),
                      .reproducible = plan.orders.AnyLayout(),
                      .row_ranks = plan.orders.AnyLayout() ? 1 : plan.tensor},
          .chunks = slices,
          .schedule = ScheduleOf(plan, own),
          .steps = StepsOf(plan.schedule)};
}

}  // namespace adaptive_train
