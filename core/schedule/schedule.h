// A pipeline schedule as data: what each rank does, in which order, with a text form.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/result.h"

namespace adaptive_train {

/// What a rank does with one micro-batch of one stage. The exchange and the update stand for all
/// micro-batches since the stage's last one.
enum class ActionKind : std::uint8_t {
  kForward,
  kBackward,         // both halves at once
  kBackwardInput,    // the gradient of the stage's input: what the stage before waits for
  kBackwardWeight,   // the gradients of the stage's parameters; not before the input's
  kSendForward,      // the stage's output, to the next stage
  kReceiveForward,   // the stage's input, from the stage before
  kSendBackward,     // the gradient of the stage's input, to the stage before
  kReceiveBackward,  // the gradient of the stage's output, from the next stage
  kReduce,           // starts the sum of the stage's gradients over replicas
  kGather,           // starts to collect the stage's parameters where they are sharded
  kStep,             // the optimizer's update, after the sum
};
inline constexpr int kActionKinds = 11;

/// `stage` counts over the whole pipeline. `micro_batch` counts within the schedule: of a reduce or
/// step the last one whose gradients are in it, of a gather the first one that reads the weights.
struct Action {
  int stage = 0;
  ActionKind kind = ActionKind::kForward;
  int micro_batch = 0;
  bool operator==(const Action&) const = default;
};

/// Forward or a backward: what takes the device's time for one micro-batch.
bool IsCompute(ActionKind kind);
/// Backward or its first half: what makes the gradient of the stage's input.
bool MakesInputGradient(ActionKind kind);
/// Backward or its second half: after it the micro-batch's activations are not needed any more.
bool EndsMicroBatch(ActionKind kind);
/// How many micro-batches at most have gone forward through a stage and not yet all the way
/// backward, by a rank's row: so many states the rank needs. Micro-batches go backward in the order
/// in which they went forward.
int MostInFlight(std::span<const Action> row, int stage);
/// Whether the row has second halves of backwards.
bool HasHalves(std::span<const Action> row);
bool IsSend(ActionKind kind);
bool IsReceive(ActionKind kind);

/// "2F0", "2B0", "2I0", "2W0", "1SEND_F3", "2RECV_F3", "2SEND_B3", "1RECV_B3", "2REDUCE7",
/// "2GATHER0", "2STEP7": stage, kind, micro-batch.
std::string ToText(const Action& action);
/// Reads one action (untrusted). Fails in one line.
Result<Action> ActionFromText(std::string_view text);

/// What all ranks of one pipeline do in a step, or, of orders without a flush, in several. A value.
struct Schedule {
  int stages = 0;         // of the whole pipeline: ranks times chunks
  int micro_batches = 0;  // of all steps
  std::vector<std::vector<Action>> ranks;

  /// A rank's chunks are the stages rank, rank + ranks, rank + 2 ranks, ... (Narayanan et al. 2021).
  int RankOf(int stage) const { return stage % static_cast<int>(ranks.size()); }
  bool operator==(const Schedule&) const = default;
};

/// One line per rank, its actions in their order, separated by commas.
std::string ToCsv(const Schedule& schedule);
/// Reads such lines (untrusted). The number of stages and of micro-batches are those of the actions
/// named. Fails in one line with row and column, also where there are too few actions for so many
/// stages and micro-batches. CheckSchedule tells whether what came back can run.
Result<Schedule> ScheduleFromCsv(std::string_view text);

}  // namespace adaptive_train
