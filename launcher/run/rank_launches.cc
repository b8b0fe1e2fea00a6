#include "launcher/run/rank_launches.h"

#include <unistd.h>

#include <utility>

#include "core/kept_folder.h"
#include "core/token_proof.h"
#include "launcher/steps/rank_environment.h"

namespace adaptive_train {
namespace {

constexpr const char* kHere = "127.0.0.1";

}  // namespace

RankLaunches::RankLaunches(const Config& config, const Allocation& allocation,
                           const Programs& programs, std::string run_dir)
    : config_(config),
      allocation_(allocation),
      programs_(programs),
      run_dir_(std::move(run_dir)),
      memory_key_(NewNonce()) {}

JobStepSpec RankLaunches::Next(const Plan& plan, std::optional<std::int64_t> committed) {
  JobStepSpec spec;
  spec.plan = &plan;
  spec.run_dir = run_dir_;
  spec.worker = programs_.worker;
  spec.saving_patience = std::chrono::seconds(config_.checkpoint.patience_s);
  spec.environment = RankEnvironment(CurrentEnvironment());
  if (allocation_.in_slurm) spec.environment["ADAPTIVE_TRAIN_BATCH_HOST"] = allocation_.OwnNode();
  spec.environment["ADAPTIVE_TRAIN_MEMORY_KEY"] = memory_key_;
  spec.environment["ADAPTIVE_TRAIN_JOB"] = std::to_string(allocation_.job_id);
  spec.environment["ADAPTIVE_TRAIN_ATTEMPT"] = std::to_string(++attempt_);
  if (committed) spec.environment["ADAPTIVE_TRAIN_COMMITTED"] = std::to_string(*committed);
  spec.launch = config_.launch;
  spec.usual_hellos = usual_hellos_;
  if (allocation_.in_slurm) spec.slurmds = FindSlurmds(plan);
  spec.first_rank =
      allocation_.in_slurm ? AddressOf(spec.slurmds[plan.ranks[0].device.node]) : kHere;
  return spec;
}

void RankLaunches::LearnFrom(const RunOutcome& outcome) {
  if (outcome.hellos) usual_hellos_ = outcome.hellos;
}

std::string RankLaunches::KeptName() const {
  return KeptFolderPrefix(::geteuid(), std::to_string(allocation_.job_id), allocation_.OwnNode()) +
         memory_key_;
}

std::string RankLaunches::KeptHere() const { return std::string(kKeptRoot) + "/" + KeptName(); }

void RankLaunches::RemoveKeptHere() const {
  (void)RemoveKeptFolders(kKeptRoot, KeptName(), ::geteuid());
}

}  // namespace adaptive_train
