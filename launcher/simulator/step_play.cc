#include "launcher/simulator/step_play.h"

#include <algorithm>
#include <numeric>

namespace adaptive_train {
namespace {

constexpr double kNoDebt = 1e-9;  // seconds; less is not worth an event

double Sum(const std::vector<double>& seconds) {
  return std::accumulate(seconds.begin(), seconds.end(), 0.0);
}

bool IsForward(const Action& action) { return action.kind == ActionKind::kForward; }

Activity ActivityOf(ActionKind kind) {
  switch (kind) {
    case ActionKind::kForward:
      return Activity::kForward;
    case ActionKind::kBackwardInput:
      return Activity::kBackwardInput;
    case ActionKind::kBackwardWeight:
      return Activity::kBackwardWeight;
    default:
      return Activity::kBackward;
  }
}

}  // namespace

StepPlay::StepPlay(const PlanProblem& problem, const Layout& layout,
                   const SimulationOptions& options, int step, const std::vector<double>& begins)
    : problem_(problem),
      layout_(layout),
      options_(options),
      chance_(options.chance, step),
      links_(loop_, problem.links, options.cards, chance_),
      group_of_(problem.devices.size(), -1) {
  MakeGroups(begins);
  if (layout.data > 1) MakeExchanges();
  links_.WhenMoved([this](int from, int to, double bytes) {
    for (const int device : {from, to}) {
      const int group = group_of_[static_cast<std::size_t>(device)];
      At(group).debt += bytes * places_[static_cast<std::size_t>(group)].transfer_s_per_byte;
    }
  });
}

void StepPlay::MakeGroups(const std::vector<double>& begins) {
  std::vector<Schedule> schedules;
  schedules.reserve(static_cast<std::size_t>(layout_.data));
  for (int replica = 0; replica < layout_.data; ++replica)
    schedules.push_back(OrderOf(layout_, replica));
  for (int stage = 0; stage < layout_.Stages(); ++stage) {
    for (int replica = 0; replica < layout_.data; ++replica) {
      const int device = layout_.devices[layout_.DeviceIndex(stage, replica, 0)];
      const Schedule& schedule = schedules[static_cast<std::size_t>(replica)];
      group_of_[static_cast<std::size_t>(device)] = static_cast<int>(groups_.size());
      const ProblemDevice& its = problem_.devices[static_cast<std::size_t>(device)];
      places_.push_back({device, its.node,
                         problem_.kinds[static_cast<std::size_t>(its.kind)].transfer_s_per_byte});
      Group group{.stage = stage, .replica = replica};
      for (int chunk = stage; chunk < layout_.Chunks(); chunk += layout_.Stages())
        group.times.emplace_back(problem_, layout_, chunk, replica);
      group.actions = schedule.ranks[static_cast<std::size_t>(stage)];
      group.activations.assign(
          group.times.size(),
          std::vector<Message>(static_cast<std::size_t>(schedule.micro_batches)));
      group.gradients = group.activations;
      group.begin = group.free_since = begins[groups_.size()];
      groups_.push_back(std::move(group));
    }
  }
}

void StepPlay::MakeExchanges() {
  for (int stage = 0; stage < layout_.Stages(); ++stage) {
    const std::span members(places_.begin() + IndexOf(stage, 0),
                            static_cast<std::size_t>(layout_.data));
    const StageExchange::Events events{
        .summed = [this, stage](int replica) { Summed(IndexOf(stage, replica)); },
        .agreed = [this, stage](int replica) { Update(IndexOf(stage, replica)); },
        .gathered = [this, stage](int replica) { End(IndexOf(stage, replica)); }};
    exchanges_.push_back(std::make_unique<StageExchange>(loop_, links_, problem_, layout_, stage,
                                                         options_, members, events));
  }
}

void StepPlay::Run() {
  for (std::size_t g = 0; g < groups_.size(); ++g)
    loop_.At(groups_[g].begin, [this, g] { Next(static_cast<int>(g)); });
  loop_.Run();
}

double StepPlay::SamplesOf(const Group& group, int micro_batch) const {
  const ReplicaShare& share = layout_.shares[static_cast<std::size_t>(group.replica)];
  return static_cast<double>(
      std::min(share.micro_batch, share.samples - micro_batch * share.micro_batch));
}

/// What an action has to wait for; none if the group's own order is enough.
const StepPlay::Message* StepPlay::InputOf(const Group& group, const Action& action) const {
  const auto i = static_cast<std::size_t>(action.micro_batch);
  const std::size_t chunk = ChunkOf(action.stage);
  if (IsForward(action)) return action.stage == 0 ? nullptr : &group.activations[chunk][i];
  if (!MakesInputGradient(action.kind)) return nullptr;
  return action.stage == layout_.Chunks() - 1 ? nullptr : &group.gradients[chunk][i];
}

void StepPlay::Next(int index) {
  Group& group = At(index);
  if (group.busy || group.next == group.actions.size() || loop_.Now() < group.begin) return;
  const Action& action = group.actions[group.next];
  const Message* input = InputOf(group, action);
  if (input != nullptr && !input->arrived) return;
  NoteWaiting(group, input);
  group.busy = true;
  group.action_begin = loop_.Now();
  group.debt = 0;  // transfers while the device waited took nothing from it
  const int draw = static_cast<int>(group.next);
  if (IsForward(action)) return Forward(index, action, draw);
  Backward(index, action, draw);
}

void StepPlay::NoteWaiting(Group& group, const Message* input) {
  const double waited = loop_.Now() - group.free_since;
  if (waited <= 0) return;
  const double moving =
      input == nullptr ? 0 : loop_.Now() - std::max(group.free_since, input->sent);
  group.parts.activations += moving;
  group.parts.bubble += waited - moving;
  Note(group, Activity::kIdle, group.free_since);
}

/// Calls `then` when the device has computed for that long, besides its transfers. These take at
/// most half of its time, as an operating system's scheduler shares it.
void StepPlay::Compute(int index, double seconds, EventLoop::Action then) {
  loop_.After(seconds, [this, index, seconds, then = std::move(then)]() mutable {
    const double debt = std::min(std::exchange(At(index).debt, 0.0), seconds);
    if (debt > kNoDebt) return Compute(index, debt, std::move(then));
    then();
  });
}

void StepPlay::Forward(int index, const Action& action, int draw) {
  const Group& group = At(index);
  const double samples = SamplesOf(group, action.micro_batch);
  Compute(index, Sum(TimesOf(group, action).Forward(samples, chance_, draw)),
          [this, index] { ActionOver(index); });
}

void StepPlay::Backward(int index, const Action& action, int draw) {
  Group& group = At(index);
  const StageTimes& times = TimesOf(group, action);
  auto seconds = times.Backward(action.kind, SamplesOf(group, action.micro_batch), chance_, draw);
  const auto all = static_cast<int>(group.gradients.front().size());
  if (layout_.data > 1 && EndsMicroBatch(action.kind) && action.micro_batch + 1 == all) {
    group.last_backward = std::move(seconds);
    return LastBackward(index, times.EndLayer() - 1);
  }
  Compute(index, Sum(seconds), [this, index] { ActionOver(index); });
}

/// Runs layer by layer, since a layer's gradients are final after it.
void StepPlay::LastBackward(int index, int layer) {
  const auto l = static_cast<std::size_t>(layer);
  const int first = TimesOf(At(index), At(index).actions[At(index).next]).FirstLayer();
  double seconds = At(index).last_backward[static_cast<std::size_t>(layer - first)];
  if (layout_.compressed[l]) seconds += problem_.layers[l].compression_s;
  Compute(index, seconds, [this, index, layer, first] {
    const Group& group = At(index);
    if (layer == first) ActionOver(index);
    exchanges_[static_cast<std::size_t>(group.stage)]->LayerDone(group.replica, layer);
    if (layer > first) LastBackward(index, layer - 1);
  });
}

void StepPlay::ActionOver(int index) {
  Group& group = At(index);
  const Action action = group.actions[group.next++];
  group.busy = false;
  group.free_since = loop_.Now();
  group.parts.compute += loop_.Now() - group.action_begin;
  Note(group, ActivityOf(action.kind), group.action_begin, &action);
  Send(index, action);
  if (group.next < group.actions.size()) return Next(index);
  group.backward_end = loop_.Now();
  if (layout_.data == 1) Summed(index);
}

/// Activations to the next chunk, or their gradient to the one before; nothing at the ends. The
/// size is that of the earlier chunk's last layer.
void StepPlay::Send(int from, const Action& made) {
  if (!IsForward(made) && !MakesInputGradient(made.kind)) return;
  const int chunk = made.stage + (IsForward(made) ? 1 : -1);
  if (chunk < 0 || chunk == layout_.Chunks()) return;
  const auto end = static_cast<std::size_t>(std::min(made.stage, chunk)) + 1;
  const auto last = static_cast<std::size_t>(layout_.cut[end] - 1);
  const double bytes = SamplesOf(At(from), made.micro_batch) * problem_.layers[last].boundary_bytes;
  const int to = IndexOf(chunk % layout_.Stages(), At(from).replica);
  auto& messages = IsForward(made) ? At(to).activations : At(to).gradients;
  Message* message = &messages[ChunkOf(chunk)][static_cast<std::size_t>(made.micro_batch)];
  message->sent = loop_.Now();
  links_.Send(places_[static_cast<std::size_t>(from)], places_[static_cast<std::size_t>(to)], bytes,
              [this, to, message] {
                message->arrived = true;
                Next(to);
              });
}

bool StepPlay::ExchangesTied(const Group& group) const {
  return problem_.tied && layout_.Stages() > 1 &&
         (group.stage == 0 || group.stage == layout_.Stages() - 1);
}

void StepPlay::Summed(int index) {
  At(index).summed = true;
  if (!ExchangesTied(At(index))) return Agree(index);
  TieIfBothThere(At(index).replica);
}

/// The last stage sends its gradient of the shared embedding to the first, and gets the sum back.
void StepPlay::TieIfBothThere(int replica) {
  const int first = IndexOf(0, replica), last = IndexOf(layout_.Stages() - 1, replica);
  if (!At(first).summed || !At(last).summed) return;
  const Place a = places_[static_cast<std::size_t>(first)];
  const Place b = places_[static_cast<std::size_t>(last)];
  links_.Send(b, a, problem_.tied_bytes, [this, a, b, first, last] {
    links_.Send(a, b, problem_.tied_bytes, [this, first, last] {
      Agree(first);
      Agree(last);
    });
  });
}

void StepPlay::Agree(int index) {
  if (exchanges_.empty()) return Update(index);
  exchanges_[static_cast<std::size_t>(At(index).stage)]->Agree(At(index).replica);
}

void StepPlay::Update(int index) {
  Group& group = At(index);
  group.parts.gradients += loop_.Now() - group.backward_end;
  double began = group.backward_end;
  if (!exchanges_.empty())
    began = exchanges_[static_cast<std::size_t>(group.stage)]->Began(group.replica);
  Note(group, Activity::kExchange, began);
  group.update_begin = loop_.Now();
  double seconds = 0;
  for (const StageTimes& times : group.times)
    seconds += times.Update(chance_, static_cast<int>(group.actions.size()));
  loop_.After(seconds, [this, index] {
    Group& updated = At(index);
    Note(updated, Activity::kUpdate, updated.update_begin);
    updated.parts.update = loop_.Now() - updated.update_begin;
    updated.free_since = loop_.Now();
    if (layout_.shard == 0 || exchanges_.empty()) return End(index);
    exchanges_[static_cast<std::size_t>(updated.stage)]->Gather(updated.replica);
  });
}

void StepPlay::End(int index) {
  Group& group = At(index);
  group.parts.gradients += loop_.Now() - group.free_since;
  Note(group, Activity::kExchange, group.free_since);
  group.end = loop_.Now();
}

void StepPlay::Note(Group& group, Activity activity, double begin, const Action* action) {
  if (!options_.timeline || loop_.Now() <= begin) return;
  group.spans.push_back({.rank = 0,
                         .activity = activity,
                         .micro_batch = action == nullptr ? -1 : action->micro_batch,
                         .begin = begin,
                         .end = loop_.Now(),
                         .chunk = action == nullptr ? 0 : action->stage / layout_.Stages()});
}

std::vector<double> StepPlay::Ends() const {
  std::vector<double> ends;
  for (const Group& group : groups_) ends.push_back(group.end);
  return ends;
}

StepCost StepPlay::PartsOf(int index) const {
  const Group& group = groups_[static_cast<std::size_t>(index)];
  StepCost parts = group.parts;
  parts.step = group.end - group.begin;
  return parts;
}

std::vector<Span> StepPlay::Timeline() const {
  std::vector<Span> timeline;
  double first = std::numeric_limits<double>::infinity();
  for (const Group& group : groups_) first = std::min(first, group.begin);
  for (std::size_t g = 0; g < groups_.size(); ++g) {
    for (int t = 0; t < layout_.tensor; ++t) {
      for (Span span : groups_[g].spans) {
        span.rank = static_cast<int>(g) * layout_.tensor + t;
        span.begin -= first;
        span.end -= first;
        timeline.push_back(span);
      }
    }
  }
  std::stable_sort(timeline.begin(), timeline.end(), [](const Span& a, const Span& b) {
    return a.rank != b.rank ? a.rank < b.rank : a.begin < b.begin;
  });
  return timeline;
}

}  // namespace adaptive_train
