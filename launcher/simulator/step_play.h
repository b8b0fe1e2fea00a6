// One simulated optimizer step, from the first forward to the last update.
#pragma once

#include <limits>
#include <memory>
#include <vector>

#include "core/schedule/schedule.h"
#include "launcher/simulator/chance.h"
#include "launcher/simulator/event_loop.h"
#include "launcher/simulator/simulated_links.h"
#include "launcher/simulator/simulator.h"
#include "launcher/simulator/stage_exchange.h"
#include "launcher/simulator/stage_times.h"

namespace adaptive_train {

/// A group is the devices of one stage of one replica: index stage x data + replica. One thread;
/// runs once.
class StepPlay {
 public:
  /// `begins`: when each group is ready, in seconds.
  StepPlay(const PlanProblem& problem, const Layout& layout, const SimulationOptions& options,
           int step, const std::vector<double>& begins);

  void Run();
  /// When each group's step is over; infinity if never.
  std::vector<double> Ends() const;
  StepCost PartsOf(int group) const;
  std::vector<Span> Timeline() const;
  std::vector<LinkUse> Links() const { return links_.Uses(); }

 private:
  /// Activations, or their gradient, of one micro-batch.
  struct Message {
    double sent = 0;
    bool arrived = false;
  };

  struct Group {
    int stage = 0, replica = 0;
    std::vector<StageTimes> times{};  // index = chunk of the stage
    std::vector<Action> actions{};    // the schedule's row
    std::size_t next = 0;
    bool busy = false;
    double free_since = 0;
    // Incoming; index = chunk of the stage, micro-batch.
    std::vector<std::vector<Message>> activations{}, gradients{};
    std::vector<double> last_backward{};  // seconds of each layer
    double begin = 0, action_begin = 0, backward_end = 0, update_begin = 0;
    double end = std::numeric_limits<double>::infinity();
    double debt = 0;  // seconds that transfers took from the device's computing
    bool summed = false;
    StepCost parts{};
    std::vector<Span> spans{};  // rank is that of the group
  };

  Group& At(int group) { return groups_[static_cast<std::size_t>(group)]; }
  int IndexOf(int stage, int replica) const { return stage * layout_.data + replica; }
  /// Of the actions' stages, which are chunks of the model, among those of their group.
  std::size_t ChunkOf(int stage) const {
    return static_cast<std::size_t>(stage / layout_.Stages());
  }
  const StageTimes& TimesOf(const Group& group, const Action& action) const {
    return group.times[ChunkOf(action.stage)];
  }
  double SamplesOf(const Group& group, int micro_batch) const;
  bool ExchangesTied(const Group& group) const;

  void MakeGroups(const std::vector<double>& begins);
  void MakeExchanges();
  void Next(int group);
  const Message* InputOf(const Group& group, const Action& action) const;
  void NoteWaiting(Group& group, const Message* input);
  void Compute(int group, double seconds, EventLoop::Action then);
  void Forward(int group, const Action& action, int draw);
  void Backward(int group, const Action& action, int draw);
  void LastBackward(int group, int layer);
  void ActionOver(int group);
  void Send(int group, const Action& made);
  void Summed(int group);
  void TieIfBothThere(int replica);
  void Agree(int group);
  void Update(int group);
  void End(int group);
  void Note(Group& group, Activity activity, double begin, const Action* action = nullptr);

  const PlanProblem& problem_;
  const Layout& layout_;
  const SimulationOptions& options_;
  const Chance chance_;
  EventLoop loop_;
  SimulatedLinks links_;
  std::vector<Place> places_;  // of the groups' first tensor ranks
  std::vector<int> group_of_;  // index = device
  std::vector<Group> groups_;
  std::vector<std::unique_ptr<StageExchange>> exchanges_;  // index = stage; empty with one replica
};

}  // namespace adaptive_train
