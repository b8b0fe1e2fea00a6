// What a layout costs and needs, by docs/planning.md alone.
#pragma once

#include <vector>

#include "launcher/planner/problem.h"

namespace adaptive_train::oracle {

/// Seconds of one optimizer step, and bytes.
struct Judgement {
  double step = 0;      // replica + exchange + tied
  double replica = 0;   // the slowest one's forward and backward
  double exchange = 0;  // of gradients, and update, of the stage where they take longest
  double tied = 0;      // between first and last stage
  std::vector<double> memory_bytes;  // index as in Layout::devices
  bool fits = false;                 // every device is within kMemoryShare
};

/// Judges a layout that is well formed: indices in range, each device once, shares positive and
/// adding up. Rings and compressed layers count as the layout has them.
Judgement Judge(const PlanProblem& problem, const Layout& layout);

}  // namespace adaptive_train::oracle
