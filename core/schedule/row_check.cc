#include "core/schedule/row_check.h"

#include <fmt/format.h>

#include <algorithm>
#include <string_view>

namespace adaptive_train {
namespace {

using enum ActionKind;

/// How far a stage is. Micro-batches ascend, so that one number says which are done.
struct StageProgress {
  int forwards = 0, input_gradients = 0, weight_gradients = 0;
  int sent_forward = 0, received_forward = 0, sent_backward = 0, received_backward = 0;
  int reduced = 0, stepped = 0;
  int steps_done = 0;
  bool gathered = false;
  std::vector<int> steps;  // the last micro-batch of each update
};

class RowCheck {
 public:
  RowCheck(const Schedule& schedule, const ScheduleNeeds& needs)
      : schedule_(schedule),
        needs_(needs),
        stages_(static_cast<std::size_t>(schedule.stages)),
        communicates_(needs.communication || HasSends(schedule) || Has(kReceiveForward) ||
                      Has(kReceiveBackward)),
        reduces_(needs.reduce || Has(kReduce)),
        gathers_(needs.gather || Has(kGather)),
        steps_(needs.step || Has(kStep)) {
    for (const auto& row : schedule.ranks)
      for (const Action& action : row)
        if (action.kind == kStep && action.stage < schedule.stages)
          Of(action.stage).steps.push_back(action.micro_batch);
  }

  std::optional<RowFault> Row(int rank) {
    const auto& row = schedule_.ranks[static_cast<std::size_t>(rank)];
    for (int index = 0; const Action& action : row) {
      const std::string why = Take(rank, action);
      if (!why.empty()) return RowFault{{rank, index}, ToText(action) + " " + why};
      ++index;
    }
    for (int stage = rank; stage < schedule_.stages;
         stage += static_cast<int>(schedule_.ranks.size())) {
      const std::string missing = Missing(stage);
      if (!missing.empty())
        return RowFault{{rank, static_cast<int>(row.size())},
                        fmt::format("rank {} ends without {}", rank, missing)};
    }
    return std::nullopt;
  }

 private:
  bool Has(ActionKind kind) const {
    for (const auto& row : schedule_.ranks)
      for (const Action& action : row)
        if (action.kind == kind) return true;
    return false;
  }
  StageProgress& Of(int stage) { return stages_[static_cast<std::size_t>(stage)]; }
  bool Elsewhere(int stage, int neighbour) const {
    return neighbour >= 0 && neighbour < schedule_.stages &&
           schedule_.RankOf(stage) != schedule_.RankOf(neighbour);
  }

  std::string Take(int rank, const Action& action);
  std::string TakeCompute(StageProgress& stage, const Action& action);
  std::string TakeMessage(StageProgress& stage, const Action& action);
  std::string TakeUpdate(StageProgress& stage, const Action& action);
  std::string Forward(StageProgress& stage, const Action& action);
  std::string Backward(StageProgress& stage, const Action& action);
  std::string Missing(int stage);

  /// The next of its kind, if that is what the action is.
  static std::string Next(int& done, int micro_batch, bool ready, std::string_view needed) {
    if (micro_batch < done) return "stands a second time";
    if (micro_batch > done)
      return fmt::format("stands where micro-batch {} is the next of its kind", done);
    if (!ready) return fmt::format("comes before {}", needed);
    ++done;
    return "";
  }

  const Schedule& schedule_;
  const ScheduleNeeds& needs_;
  std::vector<StageProgress> stages_;
  const bool communicates_, reduces_, gathers_, steps_;
};

std::string RowCheck::Take(int rank, const Action& action) {
  if (action.stage >= schedule_.stages || action.stage < 0)
    return fmt::format("names a stage beyond the last, {}", schedule_.stages - 1);
  if (action.micro_batch >= schedule_.micro_batches || action.micro_batch < 0)
    return fmt::format("names a micro-batch beyond the last, {}", schedule_.micro_batches - 1);
  if (schedule_.RankOf(action.stage) != rank)
    return fmt::format("stands at rank {}; the stage is rank {}'s", rank,
                       schedule_.RankOf(action.stage));
  StageProgress& stage = Of(action.stage);
  if (IsCompute(action.kind)) return TakeCompute(stage, action);
  if (IsSend(action.kind) || IsReceive(action.kind)) return TakeMessage(stage, action);
  return TakeUpdate(stage, action);
}

std::string RowCheck::TakeCompute(StageProgress& stage, const Action& action) {
  if (action.kind == kForward) return Forward(stage, action);
  if (action.kind != kBackwardWeight) return Backward(stage, action);
  return Next(stage.weight_gradients, action.micro_batch,
              action.micro_batch < stage.input_gradients, "the gradient of its input");
}

/// Weights that a forward reads lack one update at most for each spare version.
std::string RowCheck::Forward(StageProgress& stage, const Action& action) {
  if (communicates_ && Elsewhere(action.stage, action.stage - 1) &&
      action.micro_batch >= stage.received_forward)
    return "comes before its input is received";
  if (gathers_ && !stage.gathered) return "comes before its weights are gathered";
  const auto before = std::lower_bound(stage.steps.begin(), stage.steps.end(), action.micro_batch) -
                      stage.steps.begin();
  if (stage.steps_done + needs_.weight_versions - 1 < static_cast<int>(before))
    return fmt::format("comes before the update that it needs: {} of {} are done", stage.steps_done,
                       before);
  return Next(stage.forwards, action.micro_batch, true, "");
}

std::string RowCheck::Backward(StageProgress& stage, const Action& action) {
  if (communicates_ && Elsewhere(action.stage, action.stage + 1) &&
      action.micro_batch >= stage.received_backward)
    return "comes before the gradient of its output is received";
  std::string why = Next(stage.input_gradients, action.micro_batch,
                         action.micro_batch < stage.forwards, "its forward");
  if (!why.empty() || action.kind == kBackwardInput) return why;
  return Next(stage.weight_gradients, action.micro_batch, true, "");
}

std::string RowCheck::TakeMessage(StageProgress& stage, const Action& action) {
  const bool up = action.kind == kSendForward || action.kind == kReceiveBackward;
  if (!Elsewhere(action.stage, action.stage + (up ? 1 : -1)))
    return "has no other rank to exchange with";
  switch (action.kind) {
    case kSendForward:
      return Next(stage.sent_forward, action.micro_batch, action.micro_batch < stage.forwards,
                  "its forward");
    case kSendBackward:
      return Next(stage.sent_backward, action.micro_batch,
                  action.micro_batch < stage.input_gradients, "its backward");
    case kReceiveForward:
      return Next(stage.received_forward, action.micro_batch, true, "");
    default:
      return Next(stage.received_backward, action.micro_batch, true, "");
  }
}

std::string RowCheck::TakeUpdate(StageProgress& stage, const Action& action) {
  const int done = action.micro_batch + 1;
  if (action.kind == kGather) {
    if (stage.gathered) return "stands a second time";
    if (action.micro_batch != 0 || stage.forwards > 0) return "comes after the first forward";
    stage.gathered = true;
    return "";
  }
  if (stage.weight_gradients != done)
    return fmt::format("stands where gradients of {} micro-batches are there, not of {}",
                       stage.weight_gradients, done);
  int& updated = action.kind == kReduce ? stage.reduced : stage.stepped;
  if (updated >= done) return "stands a second time";
  if (action.kind == kStep && reduces_ && stage.reduced != done) return "comes before its reduce";
  if (action.kind == kStep) ++stage.steps_done;
  updated = done;
  return "";
}

std::string RowCheck::Missing(int number) {
  const StageProgress& stage = Of(number);
  const int all = schedule_.micro_batches;
  const auto missing = [&](ActionKind kind, int done, bool needed) {
    return needed && done < all ? ToText({number, kind, done}) : std::string();
  };
  const bool before = communicates_ && Elsewhere(number, number - 1);
  const bool after = communicates_ && Elsewhere(number, number + 1);
  for (const std::string& text : {missing(kForward, stage.forwards, true),
                                  missing(kBackwardInput, stage.input_gradients, true),
                                  missing(kBackwardWeight, stage.weight_gradients, true),
                                  missing(kReceiveForward, stage.received_forward, before),
                                  missing(kSendBackward, stage.sent_backward, before),
                                  missing(kReceiveBackward, stage.received_backward, after),
                                  missing(kSendForward, stage.sent_forward, after)}) {
    if (!text.empty()) return text;
  }
  if (reduces_ && stage.reduced < all) return ToText({number, kReduce, all - 1});
  if (gathers_ && !stage.gathered) return ToText({number, kGather, 0});
  if (steps_ && stage.stepped < all) return ToText({number, kStep, all - 1});
  return "";
}

}  // namespace

std::optional<RowFault> CheckRows(const Schedule& schedule, const ScheduleNeeds& needs) {
  RowCheck check(schedule, needs);
  for (int rank = 0; rank < static_cast<int>(schedule.ranks.size()); ++rank)
    if (auto fault = check.Row(rank)) return fault;
  return std::nullopt;
}

std::vector<int> StepsOf(const Schedule& schedule, int stage) {
  std::vector<int> steps;
  for (const Action& action : schedule.ranks[static_cast<std::size_t>(schedule.RankOf(stage))])
    if (action.stage == stage && action.kind == kStep) steps.push_back(action.micro_batch);
  return steps;
}

}  // namespace adaptive_train
