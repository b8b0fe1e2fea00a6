// simulator_vs_simgrid: six network-bound cases played by SimGrid and by our simulator. Prints both
// and fails where they are 5 % or more apart.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <string>
#include <vector>

#include "launcher/simulator/simulator.h"
#include "tests/peers/simgrid_judge.h"
#include "tests/unit/simulator/problems.h"

namespace adaptive_train {
namespace {

constexpr double kAllowed = 0.05;
constexpr double kMegabit = 1e6 / 8;

int apart = 0;

void Compare(const std::string& name, const Result<double>& judged, double ours) {
  if (!judged) {
    fmt::print("{:<44} {}\n", name, judged.error().message);
    ++apart;
    return;
  }
  const double difference = ours / *judged - 1;
  const bool bad = !(std::abs(difference) < kAllowed);
  fmt::print("{:<44} {:>11.4f} {:>11.4f} {:>+9.2f} %{}\n", name, *judged, ours, 100 * difference,
             bad ? "  too far" : "");
  apart += bad;
}

void CompareSteps(const std::string& name, const PlanProblem& problem, const Layout& layout,
                  const JudgeCards& cards, SimulationOptions options = {}) {
  options.cards = {cards.egress, cards.ingress};
  options.timeline = false;
  const double ours = Simulate(problem, layout, options).step_seconds.front();
  Compare(name, StepBySimGrid(problem, layout, cards, options.bucket_bytes), ours);
}

JudgeCards EvenCards(int nodes, double bytes_per_second) {
  const std::vector<double> all(static_cast<std::size_t>(nodes), bytes_per_second);
  return {all, all};
}

/// 30 MB of gradients from six layers, on nodes with gigabit cards.
PlanProblem RingProblem(int members) {
  return EvenProblem{.devices = members,
                     .layers = 6,
                     .global_batch = members,
                     .forward_s = 0.005,
                     .backward_s = 0.01,
                     .update_s = 0.001,
                     .gradient_bytes = 5e6,
                     .link = {1e-4, 1000 * kMegabit}}
      .Make();
}

void RingOnEvenLinks() {
  const PlanProblem problem = RingProblem(8);
  const Layout layout = EvenLayout(problem, 1, 8, 1);
  const JudgeCards cards = EvenCards(8, 1000 * kMegabit);
  CompareSteps("ring of 8, even links", problem, layout, cards);
  CompareSteps("  the same as one flow per bucket", problem, layout, cards, {.long_ring = 4});
}

void RingOnOneSlowLink() {
  PlanProblem problem = RingProblem(8);
  problem.links.At(3, 4) = {1e-4, 100 * kMegabit};
  const Layout layout = EvenLayout(problem, 1, 8, 1);
  const JudgeCards cards = EvenCards(8, 1000 * kMegabit);
  CompareSteps("ring of 8, one slow link", problem, layout, cards);
  CompareSteps("  the same as one flow per bucket", problem, layout, cards, {.long_ring = 4});
}

/// Both stages of a replica on one node: each node's card carries two rings.
void RingsThatShareCards() {
  PlanProblem problem = RingProblem(8);
  for (int i = 0; i < 8; ++i) {
    problem.devices[static_cast<std::size_t>(i)].node = i % 4;
    problem.links.At(i, i) = {1e-6, 1e10};
  }
  problem.links.At(1, 2) = {1e-4, 400 * kMegabit};
  problem.global_batch = 16;
  CompareSteps("two rings of 4 that share cards", problem, EvenLayout(problem, 2, 4, 1),
               EvenCards(8, 1000 * kMegabit));
}

void PipelineWithASlowBoundary() {
  PlanProblem problem = EvenProblem{.devices = 4,
                                    .layers = 8,
                                    .global_batch = 24,
                                    .forward_s = 0.01,
                                    .backward_s = 0.02,
                                    .boundary_bytes = 1e6,
                                    .link = {1e-4, 1000 * kMegabit}}
                            .Make();
  for (const auto& [a, b] : {std::pair{1, 2}, std::pair{2, 1}})
    problem.links.At(a, b) = {1e-4, 100 * kMegabit};
  CompareSteps("pipeline of 4, one slow boundary", problem, EvenLayout(problem, 4, 1, 2),
               EvenCards(4, 1000 * kMegabit));
}

void AllToOne() {
  LinkTable links(9, {1e-4, 1000 * kMegabit});
  links.At(7, 0) = {1e-4, 20 * kMegabit};
  links.At(8, 0) = {1e-4, 50 * kMegabit};
  JudgeCards cards = EvenCards(9, 1000 * kMegabit);
  cards.ingress[0] = 300 * kMegabit;
  cards.egress[3] = 10 * kMegabit;
  std::vector<JudgeMessage> messages;
  for (int from = 1; from < 9; ++from)
    messages.push_back({from, 0, 1e6 * (2 + from % 4), 0.05 * (from % 3)});
  EventLoop loop;
  const Chance certain({}, 0);
  SimulatedLinks ours(loop, links, {cards.egress, cards.ingress}, certain);
  double sum = 0;
  for (const JudgeMessage& m : messages)
    loop.At(m.at, [&] {
      ours.Send({m.from, m.from}, {m.to, m.to}, m.bytes, [&] { sum += loop.Now(); });
    });
  loop.Run();
  Compare("8 senders, one receiver, mean arrival", MessagesBySimGrid(links, cards, messages),
          sum / static_cast<double>(messages.size()));
}

/// Two devices a node, uneven cards and kinds: activations, gradients and two rings at once.
void UnevenHierarchy() {
  PlanProblem problem = RingProblem(8);
  problem.global_batch = 24;
  const double card[] = {400, 100, 50, 400};
  JudgeCards cards = EvenCards(8, 1e9);
  for (int n = 0; n < 4; ++n) {
    cards.egress[static_cast<std::size_t>(n)] = cards.ingress[static_cast<std::size_t>(n)] =
        card[n] * kMegabit;
    for (int to = 0; to < 4; ++to)
      problem.links.At(n, to) = {2e-4, std::min(card[n], card[to]) * kMegabit};
    problem.links.At(n, n) = {2e-4, 1e9};
  }
  problem.kinds.push_back(problem.kinds[0]);
  for (LayerSeconds& l : problem.kinds[1].layers) {
    l.forward.per_sample *= 2;
    l.backward.per_sample *= 2;
  }
  for (ProblemLayer& l : problem.layers) l.boundary_bytes = 2e5;
  for (int i = 0; i < 8; ++i) {
    problem.devices[static_cast<std::size_t>(i)].node = i / 2;
    problem.devices[static_cast<std::size_t>(i)].kind = i % 3 == 0;
  }
  Layout layout = EvenLayout(problem, 2, 4, 1);
  layout.rings[1] = {0, 2, 1, 3};
  CompareSteps("2 stages x 4 replicas, uneven hierarchy", problem, layout, cards);
}

}  // namespace
}  // namespace adaptive_train

int main() {
  using namespace adaptive_train;
  // Unbuffered: children must not print again what the parent has not yet printed.
  std::setvbuf(stdout, nullptr, _IONBF, 0);
  fmt::print("{:<44} {:>11} {:>11} {:>11}\n", "seconds", "SimGrid", "ours", "difference");
  RingOnEvenLinks();
  RingOnOneSlowLink();
  RingsThatShareCards();
  PipelineWithASlowBoundary();
  AllToOne();
  UnevenHierarchy();
  return apart == 0 ? 0 : 1;
}
