#include "launcher/job_ledger.h"

#include <algorithm>
#include <chrono>
#include <cmath>

namespace adaptive_train {
namespace {

double Now() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

JobState StateOf(ExitCode code) {
  switch (code) {
    case ExitCode::kDone:
      return JobState::kCompleted;
    case ExitCode::kInterrupted:
    case ExitCode::kTerminated:
      return JobState::kCancelled;
    case ExitCode::kRequeue:
      return JobState::kRequeued;
    default:
      return JobState::kFailed;
  }
}

}  // namespace

void RunStatistics::Add(std::span<const RankMetrics> ranks) {
  const auto slowest = std::max_element(
      ranks.begin(), ranks.end(),
      [](const RankMetrics& a, const RankMetrics& b) { return a.step_s < b.step_s; });
  if (!first_loss_) first_loss_ = slowest->loss;
  summary_.steps = slowest->step;
  summary_.tokens += slowest->tokens;
  summary_.final_loss = slowest->loss;
  if (slowest->validation_loss) summary_.validation_loss = slowest->validation_loss;
  double flops = 0, peak = 0;
  for (const RankMetrics& rank : ranks) {
    summary_.grad_bytes += rank.grad_bytes;
    summary_.param_bytes += rank.param_bytes;
    summary_.activation_bytes += rank.activation_bytes;
    summary_.peak_memory_bytes = std::max(summary_.peak_memory_bytes, rank.peak_memory_bytes);
    flops += rank.flops;
    peak += rank.product_peak;
  }
  if (peak > 0) sum_mfu_s_ += flops / peak;
  sum_s_ += slowest->step_s;
  sum_squares_s_ += slowest->step_s * slowest->step_s;
  ++count_;
}

SummaryRecord RunStatistics::Summary() const {
  SummaryRecord summary = summary_;
  if (count_ == 0 || sum_s_ <= 0) return summary;
  const double mean = sum_s_ / static_cast<double>(count_);
  const double variance = std::max(0.0, sum_squares_s_ / static_cast<double>(count_) - mean * mean);
  summary.mean_step_s = mean;
  summary.tokens_per_s = static_cast<double>(summary.tokens) / sum_s_;
  summary.robustness = 1 - std::sqrt(variance) / mean;
  if (sum_mfu_s_ > 0) summary.mfu = sum_mfu_s_ / sum_s_;
  return summary;
}

Result<JobLedger> JobLedger::Begin(const StoreLocation& location, const Job& job) {
  auto store = ProfileStore::Open(location);
  if (!store) return tl::unexpected(store.error());
  const Allocation& where = *job.allocation;
  JobRecord record;
  record.cluster = where.cluster;
  record.slurm_job_id = where.job_id;
  record.restart_count = where.restart_count;
  record.submit_time = where.submit_time;
  record.user = where.user;
  record.name = where.job_name;
  record.run_dir = job.run_dir;
  record.config = job.config;
  record.options = job.options;
  record.adaptive_train_version = ADAPTIVE_TRAIN_VERSION;
  record.start_time = Now();
  auto id = store->BeginJob(record);
  if (!id) return tl::unexpected(id.error());
  return JobLedger(std::move(*store), *id);
}

void JobLedger::Nodes(const std::vector<Node>& nodes) {
  std::vector<NodeRecord> records;
  for (const Node& node : nodes) {
    records.push_back({node.name, node.source, node.processors.model, node.processors.allowed_cores,
                       node.memory.total_bytes, ToJson(node)});
  }
  Keep(store_.SaveNodes(id_, records));
}

void JobLedger::Planned(const Plan& plan) {
  std::string why;
  for (const std::string& reason : plan.why) why += (why.empty() ? "" : "; ") + reason;
  Keep(store_.SavePlan(
      id_, {ToJson(plan), static_cast<std::int64_t>(plan.ranks.size()), plan.step_seconds, why}));
}

void JobLedger::Launched(int attempt, const std::string& outcome, const std::string& reason) {
  LaunchRecord record;
  record.attempt = attempt;
  record.started = Now();
  record.outcome = LaunchOutcomeFromString(outcome).value_or(LaunchOutcome::kFailed);
  record.reason = reason;
  retries_ += record.outcome == LaunchOutcome::kRetried ? 1 : 0;
  Keep(store_.RecordLaunch(id_, record));
}

void JobLedger::Finish(const RunOutcome& outcome, const RunStatistics& statistics) {
  if (outcome.failure) {
    const RankFailure& f = outcome.failure->failure;
    FailureRecord record;
    record.time = Now();
    if (f.step > 0) record.step = f.step;
    if (f.rank >= 0) record.rank = f.rank;
    record.host = f.host;
    record.kind = outcome.failure->kind;
    record.operation = f.operation;
    if (f.peer >= 0) record.peer = "rank " + std::to_string(f.peer);
    record.cause = f.cause;
    Keep(store_.RecordFailure(id_, record));
  }
  Keep(store_.SaveSummary(id_, statistics.Summary()));
  Keep(store_.FinishJob(id_, StateOf(outcome.code), ToInt(outcome.code), Now()));
}

}  // namespace adaptive_train
