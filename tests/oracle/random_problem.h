// Seeded random planning problems of realistic magnitudes.
#pragma once

#include <cstdint>
#include <random>

#include "launcher/planner/problem.h"

namespace adaptive_train::oracle {

/// Numbers that follow from the seed alone, on every machine.
class Draws {
 public:
  explicit Draws(std::uint64_t seed) : engine_(seed * 0x9e3779b97f4a7c15U + 1) {}
  double Uniform(double from, double to);
  /// As likely between 1 and 2 as between 2 and 4.
  double LogUniform(double from, double to);
  int Integer(int from, int to);  // both included
  bool Chance(double probability) { return Uniform(0, 1) < probability; }
  template <typename Value>
  Value OneOf(std::initializer_list<Value> values) {
    return values.begin()[Integer(0, static_cast<int>(values.size()) - 1)];
  }

 private:
  std::mt19937_64 engine_;
};

/// Up to 5 devices and 6 layers, with every feature of a problem now and then: for brute force.
PlanProblem TinyProblem(std::uint64_t seed);

/// 2 to 8 devices of 2 or 3 kinds with links of their own per pair of nodes; a transformer of 4 to
/// 10 layers.
PlanProblem SmallProblem(std::uint64_t seed);

/// `devices` of 2 or 3 kinds in nodes of 4 or 8 under switches; a transformer of 24 to 48 layers.
PlanProblem LargeProblem(std::uint64_t seed, int devices = 64);

}  // namespace adaptive_train::oracle
