// What a failed rank does to its run: whether the run goes on, and without which nodes.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "launcher/steps/supervisor.h"

namespace adaptive_train {

/// Judges the failures of one run in turn. No I/O.
class Recovery {
 public:
  struct Settings {
    std::int64_t attempts = 0;  // failures in a row that the run survives without a new step
    std::string own_node;       // where the launcher runs, which is alive; empty: on none of them
  };

  explicit Recovery(Settings settings) : settings_(std::move(settings)) {}

  /// What the run goes on without.
  struct Loss {
    std::vector<std::string> nodes;  // that fell silent: frozen, cut off or dead
    std::string doubtful;  // a node on which a process ended twice with no new step between; better
                           // left out where the others suffice
  };

  /// None where the run ends. Where a process ended its node stays, and it is started there again.
  /// What a rank reports of itself (a full disk, a wrong file) would come again, and so would what
  /// kept the first launch from training, unless it came from outside: a kill, a silent node.
  std::optional<Loss> After(const RunOutcome& outcome);

  /// The kind of a failure, of which ranks show less: the launcher's own node is alive.
  FailureKind KindOf(const Diagnosis& failure) const;

  /// How often the run has gone on.
  int Count() const { return count_; }

 private:
  const Settings settings_;
  bool trained_ = false;
  std::int64_t farthest_ = 0;  // step
  std::int64_t in_a_row_ = 0;  // failures since a step came beyond it
  int count_ = 0;
  std::string ended_on_;  // where a process ended last
};

}  // namespace adaptive_train
