// Simulates a run of weeks on a cluster whose nodes fail: how much of the time makes new steps.
#pragma once

#include <cstdint>

namespace adaptive_train {

/// What happens when a node of a run fails.
enum class AfterFailure : std::uint8_t {
  kByHand,          // the job ends; a person submits it again
  kRequeue,         // the job ends and waits in the queue again
  kSameAllocation,  // training goes on in the same job
};

/// A run on nodes that fail independently, at exponential times. All times in seconds. A step takes
/// longer in proportion to the nodes that are missing. A new job has all its nodes and spares again.
struct GoodputCase {
  int nodes = 1000;  // that train
  int spares = 0;    // that wait in the allocation, and fail as well
  double node_mtbf_s = 0;
  double step_s = 10;       // with all nodes
  double interval_s = 600;  // of training between two saves
  double save_s = 0;        // steps stand still for so long
  double write_s = 0;       // from there until the checkpoint can be read
  AfterFailure after = AfterFailure::kByHand;
  double detection_s = 0;  // until the failure is known
  double restart_s = 0;    // in the same allocation, until ranks train, without reading
  double read_s = 0;       // a checkpoint, in the same allocation
  double notice_s = 0;     // until the person submits
  double queue_s = 0;
  double launch_s = 0;   // of a new job, with reading
  int memory_steps = 0;  // state is kept in other nodes' memory every so many steps; 0: it is not
  double memory_share = 0;  // of a step, that this costs
  double least_share = 0;   // of the nodes: with fewer the run saves and waits in the queue
  double horizon_s = 30 * 86400.0;
};

/// Where the time of nodes and spares goes; the shares add up to 1.
struct Goodput {
  double useful = 0;          // steps that count in the end
  double again = 0;           // steps that were lost
  double saving = 0;          // to disk and to memory
  double down = 0;            // from a failure until ranks train
  double missing = 0;         // nodes that are lost, spares that wait
  std::int64_t failures = 0;  // of nodes that trained
};

/// Plays one run by events. A pure function: the same for the same seed. After a loss, state in
/// memory is whole again `memory_steps` steps later. A node that is lost before that may be the one
/// with the copy; the run then goes on from disk.
Goodput SimulateGoodput(const GoodputCase& run, std::uint64_t seed);

/// The interval between saves that costs least, of training (J. T. Daly, "A higher order estimate
/// of the optimum checkpoint interval for restart dumps", FGCS 2006, equation 37).
double YoungDalyInterval(double save_s, double mtbf_s);

}  // namespace adaptive_train
