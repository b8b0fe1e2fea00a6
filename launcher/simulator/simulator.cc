#include "launcher/simulator/simulator.h"

#include <algorithm>
#include <cmath>

#include "launcher/simulator/step_play.h"

namespace adaptive_train {

double Simulation::MedianStep() const {
  std::vector<double> sorted = step_seconds;
  if (sorted.empty()) return 0;
  const auto half = static_cast<std::ptrdiff_t>(sorted.size() / 2);
  std::nth_element(sorted.begin(), sorted.begin() + half, sorted.end());
  const double upper = *(sorted.begin() + half);
  if (sorted.size() % 2 == 1) return upper;
  return (upper + *std::max_element(sorted.begin(), sorted.begin() + half)) / 2;
}

Simulation Simulate(const PlanProblem& problem, const Layout& layout,
                    const SimulationOptions& options) {
  Simulation simulation;
  std::vector<double> begins(static_cast<std::size_t>(layout.Stages() * layout.data), 0.0);
  double last_end = 0;
  for (int step = 0; step < options.steps; ++step) {
    SimulationOptions of_step = options;
    of_step.timeline = options.timeline && step + 1 == options.steps;
    StepPlay play(problem, layout, of_step, step, begins);
    play.Run();
    begins = play.Ends();
    const auto slowest = std::max_element(begins.begin(), begins.end());
    const double end = *slowest;
    simulation.step_seconds.push_back(end - last_end);
    simulation.parts = play.PartsOf(static_cast<int>(slowest - begins.begin()));
    simulation.links = play.Links();
    simulation.timeline = play.Timeline();
    if (!std::isfinite(end)) break;
    last_end = end;
  }
  return simulation;
}

}  // namespace adaptive_train
