// Turns a cluster, a model and past measurements into the planner's numbers.
#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "core/cluster.h"
#include "core/model_shape.h"
#include "core/profile.h"
#include "core/result.h"
#include "launcher/planner/compression.h"
#include "launcher/planner/problem.h"
#include "launcher/planner/stage_schedule.h"

namespace adaptive_train {

/// The configuration's request to the planner; none = the planner decides.
struct PlanRequest {
  std::int64_t global_batch = 0;            // sequences per step
  std::optional<std::int64_t> micro_batch;  // sequences
  std::optional<std::int64_t> data, tensor, pipeline, shard;
  std::optional<std::int64_t> threads;  // per rank
  std::vector<int> cut;  // the chunks' layers as in Layout, of `pipeline` stages; empty: any
  ScheduleRequest schedule;
  std::optional<Recompute> recompute;             // none: whatever fits and is fastest
  bool even_shares = false;                       // as many samples for every replica
  std::optional<CompressionRequest> compression;  // none: gradients are summed whole
  bool reproducible = false;   // the same bits in any layout: shares are whole micro-batches of the
                               // size asked for, whose gradients are kept apart
  bool runnable_only = false;  // nothing that NotRunnable would name
};

/// The numbers, the device behind each index, and what had to be assumed.
struct BuiltProblem {
  PlanProblem problem;
  std::vector<Device> devices;     // index = ProblemDevice; more than the cluster's where several
                                   // ranks share one
  bool timed = true;               // every kind's layers were measured, or follow from measured or
                                   // given product speeds: seconds mean something
  std::vector<std::string> notes;  // one line each
};

/// The CPUs that the device can use: its quota, and not more than its threads.
double CpusOf(const Device& device);

/// One CPU device per node. `cpus` is what Slurm allocated on each node, 0 = all that the probe
/// found. `threads` is the configured number, none = as many as the CPUs are worth.
std::vector<Device> DevicesOf(const std::vector<Node>& nodes, const std::vector<int>& cpus,
                              std::optional<std::int64_t> threads);

/// One device per GPU of the nodes of `hosts`, which are the nodes' CPU devices. Those of a node
/// share its threads.
std::vector<Device> GpusOf(const std::vector<Node>& nodes, const std::vector<Device>& hosts);

/// Why plans have less than a node's memory: a line for each cause, naming the node with least.
std::vector<std::string> MemoryNotes(const Cluster& cluster);

/// The names (DeviceKindName) of the cluster's devices and of those that ranks would have.
std::set<std::string> KindsOf(const Cluster& cluster, const PlanRequest& request);

/// Gathers all that is known. Layer times are measured ones of the same device kind and model, else
/// derived from the device's product speed, else from its CPUs. Links are measured, else as the
/// cluster gives them for the pair, else derived from network cards and switches. Fails with
/// kNoPlan if no layout can meet the request: no devices, or more replicas than samples.
Result<BuiltProblem> BuildProblem(const Cluster& cluster, const ModelDims& dims,
                                  const TrainingFormat& format, const Profile& profile,
                                  const PlanRequest& request);

}  // namespace adaptive_train
