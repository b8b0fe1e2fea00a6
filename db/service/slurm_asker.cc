#include "db/service/slurm_asker.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <sstream>
#include <utility>

#include "core/file_io.h"
#include "db/service/command.h"

namespace adaptive_train {
namespace {

constexpr std::chrono::seconds kDeadline{5}, kPause{30};
constexpr int kMostTimes = 5;
/// More at once are not asked for: their users' reports then count for themselves alone.
constexpr std::size_t kMostWaiting = 10'000, kMostRemembered = 100'000;

std::vector<std::string> WordsOf(const std::string& text) {
  std::istringstream stream(text);
  std::vector<std::string> words;
  for (std::string word; stream >> word;) words.push_back(word);
  return words;
}

/// "ClusterName             = alpha" among the lines of `scontrol show config`.
Result<std::string> ClusterNameIn(const std::string& config) {
  std::istringstream lines(config);
  for (std::string line; std::getline(lines, line);) {
    const auto words = WordsOf(line);
    if (words.size() == 3 && words[0] == "ClusterName" && words[1] == "=") return words[2];
  }
  return Fail("scontrol show config has no ClusterName", ExitCode::kStore);
}

/// "4001|n[1-3]", as squeue is asked to print. No text that a user has chosen is in it.
Result<std::pair<uid_t, std::string>> UserAndNodes(const std::string& line) {
  const std::size_t bar = line.find('|');
  uid_t user = 0;
  const auto [end, error] =
      std::from_chars(line.data(), line.data() + std::min(bar, line.size()), user);
  if (bar == line.npos || error != std::errc() || end != line.data() + bar)
    return Fail("squeue says " + Printable(line, 80), ExitCode::kStore);
  return std::pair(user, line.substr(bar + 1));
}

}  // namespace

SlurmAsker::SlurmAsker(Take take, Log log) : take_(std::move(take)), log_(std::move(log)) {
  thread_ = std::thread([this] { Serve(); });
}

SlurmAsker::~SlurmAsker() {
  {
    std::lock_guard lock(mutex_);
    ending_ = true;
  }
  changed_.notify_one();
  thread_.join();
}

void SlurmAsker::Ask(uid_t user, std::int64_t slurm_job_id) {
  {
    std::lock_guard lock(mutex_);
    if (waiting_.size() >= kMostWaiting) return;
    if (asked_.size() >= kMostRemembered) asked_.clear();
    if (!asked_.emplace(user, slurm_job_id).second) return;
    waiting_.push_front({user, slurm_job_id});
  }
  changed_.notify_one();
}

void SlurmAsker::Serve() {
  for (;;) {
    Question question;
    {
      std::unique_lock lock(mutex_);
      while (!ending_ && (waiting_.empty() || waiting_.front().not_before > Clock::now())) {
        if (waiting_.empty()) {
          changed_.wait(lock);
        } else {
          changed_.wait_until(lock, waiting_.front().not_before);
        }
      }
      if (ending_) return;
      question = waiting_.front();
      waiting_.pop_front();
    }
    const auto seen = Answer(question);
    if (!seen) {
      Again(question, seen.error());
    } else if (seen->user == question.user) {
      take_(*seen);
    }
  }
}

Result<SeenJob> SlurmAsker::Answer(const Question& question) {
  const auto deadline = Clock::now() + kDeadline;
  if (cluster_.empty()) {
    auto name = OutputOf({"scontrol", "show", "config"}, deadline).and_then(ClusterNameIn);
    if (!name) return tl::unexpected(name.error());
    cluster_ = std::move(*name);
  }
  const auto line = OutputOf({"squeue", "--noheader", "--states=all",
                              fmt::format("--jobs={}", question.job), "--format=%U|%N"},
                             deadline);
  if (!line) return tl::unexpected(line.error());
  const auto job = UserAndNodes(line->substr(0, line->find('\n')));
  if (!job) return tl::unexpected(job.error());
  const auto nodes = OutputOf({"scontrol", "show", "hostnames", job->second}, deadline);
  if (!nodes) return tl::unexpected(nodes.error());
  return SeenJob{cluster_, job->first, WordsOf(*nodes)};
}

void SlurmAsker::Again(Question question, const Error& error) {
  if (++question.asked == 1)
    log_(fmt::format("job {}: Slurm does not say whose it is: {}", question.job, error.message));
  if (question.asked >= kMostTimes) return;
  question.not_before = Clock::now() + kPause;
  std::lock_guard lock(mutex_);
  waiting_.push_back(question);
}

}  // namespace adaptive_train
