// Where this run may place ranks: a Slurm allocation, or this machine alone.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "core/job_env.h"
#include "core/result.h"
#include "launcher/nodes/memory_limits.h"

namespace adaptive_train {

/// The job and its nodes. Without Slurm: one host, job_id 0.
struct Allocation {
  bool in_slurm = false;
  std::string cluster;  // Slurm's ClusterName, or this host's name
  std::int64_t job_id = 0;
  std::optional<std::int64_t> array_job_id, array_task_id;  // both or none: a task of an array
  std::int64_t restart_count = 0;
  double submit_time = 0;  // seconds since 1970; without Slurm: now
  std::string job_name;
  std::string account;  // that the job is charged to; may be empty
  std::string user;
  std::vector<std::string> hosts;     // in Slurm's order
  std::vector<int> cpus;              // CPUs allocated on each host; 0 = all that the probe finds
  JobMemory memory;                   // requested by the job
  std::optional<JobOptions> options;  // of --adaptive-train; none: submitted without it

  int Spares() const { return options ? options->spares : 0; }
  /// "120", or "118_3" for a task of an array.
  std::string ShownId() const;
  /// The node that this process runs on, as plans name it; empty: it is none of the job's.
  std::string OwnNode() const;
};

/// Reads the SLURM_ variables (untrusted) and, in an allocation, asks Slurm for the hosts' names
/// and the submit time. Blocks for a few seconds at most. Fails with kPreflight if Slurm does not
/// answer. Fails as ParseJobOptions does if the job's options are invalid.
Result<Allocation> FindAllocation();

/// Parses SLURM_JOB_CPUS_PER_NODE: "8(x2),4" is {8, 8, 4}. Fails on anything else or on more than
/// 65536 nodes.
Result<std::vector<int>> ParseCpusPerNode(const std::string& text);

}  // namespace adaptive_train
