#include "db/service/slurm_asker.h"

#include <fmt/format.h>

#include <algorithm>
#include <sstream>
#include <utility>

#include "core/file_io.h"
#include "core/seconds.h"
#include "db/service/command.h"

namespace adaptive_train {
namespace {

constexpr std::chrono::seconds kDeadline{5}, kPause{30};
/// A job that runs is asked about again so often, and taken to run for twice as long at most: its
/// limit may be months away.
constexpr std::chrono::hours kFollow{6};
constexpr double kAhead = 2 * std::chrono::duration<double>(kFollow).count();
constexpr std::ptrdiff_t kMostFollowed = 256;  // of a user
/// Numbers of jobs may begin anew, and a job's account may change: then Slurm is asked again.
constexpr std::chrono::hours kKept{1};
/// Between two looks whether a question is due again.
constexpr std::chrono::seconds kLookForDue{1};
constexpr int kMostTimes = 5, kMostTimesOfNode = 8;
constexpr std::ptrdiff_t kMostOfUser = 32;  // of each kind
constexpr std::size_t kMostRemembered = 100'000;

/// What a question is known by: failures of one node within ten minutes are one.
SlurmQuestion KeyOf(const SlurmQuestion& about) {
  constexpr std::int64_t kOneQuestion = 600;
  const auto* node = std::get_if<NodeQuestion>(&about);
  if (node == nullptr) return about;
  return NodeQuestion{node->node, node->time / kOneQuestion * kOneQuestion};
}

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

/// Of each program that is called.
std::chrono::steady_clock::time_point Deadline() {
  return std::chrono::steady_clock::now() + kDeadline;
}

/// More are not noted of a job that is requeued again and again.
constexpr std::size_t kMostRuns = 10;

Result<std::string> Queued(const std::string& job, const std::string& fields) {
  return OutputOf(
      {"squeue", "--local", "--noheader", "--states=all", "--jobs=" + job, "--format=" + fields},
      Deadline());
}
Result<std::string> Accounted(const std::string& job, std::vector<std::string> which) {
  which.insert(which.begin(), {"sacct", "--local", "--noheader", "--parsable2", "--allocations",
                               "--allusers", "--jobs=" + job});
  return OutputOf(which, Deadline());
}

constexpr const char *kRunsOfSqueue = "%A|%U|%S|%e|%T|%N", *kAccountOfSqueue = "%A|%a";
constexpr const char* kRunsOfSacct = "--format=JobIDRaw,UID,Start,End,State,NodeList";
constexpr const char* kAccountOfSacct = "--format=JobIDRaw,Account";

/// Those of `user` that had nodes.
std::vector<SlurmRun> RunsOf(uid_t user, std::vector<SlurmRun> runs) {
  std::erase_if(runs, [&](const SlurmRun& run) { return run.user != user || run.nodes.empty(); });
  if (runs.size() > kMostRuns) runs.erase(runs.begin(), runs.end() - kMostRuns);
  return runs;
}

struct AskedJob {
  std::vector<SlurmRun> runs;          // of the user, with nodes
  std::optional<std::string> account;  // of the newest, if that is the user's
};

/// squeue knows the newest run alone, and its account. sacct is asked where that is none of the
/// user's with nodes. Without --duplicates it, too, tells of the newest.
Result<AskedJob> AskForJob(std::int64_t number, uid_t user) {
  const std::string job = std::to_string(number);
  const auto runs_in = [&](const std::string& lines) { return RunsIn(lines, number); };
  const auto known = [](const auto& runs) { return runs && !runs->empty(); };
  const auto queued = Queued(job, kRunsOfSqueue).and_then(runs_in);
  AskedJob asked;
  // One that completes has returned some of its nodes.
  if (known(queued) && !queued->back().completing) asked.runs = RunsOf(user, *queued);
  Result<std::vector<SlurmRun>> accounted;
  if (asked.runs.empty()) {
    accounted = Accounted(job, {"--duplicates", kRunsOfSacct}).and_then(runs_in);
    if (accounted) asked.runs = RunsOf(user, *accounted);
    // Where squeue does not know it, a run without an end is one whose end was lost.
    if (!known(queued))
      for (SlurmRun& run : asked.runs) run.end = run.end.value_or(run.start.value_or(0));
  }
  const auto why = [](const auto& runs) {
    return runs ? "does not know it" : runs.error().message;
  };
  if (!known(queued) && !known(accounted))
    return Fail(fmt::format("squeue: {}; sacct: {}", why(queued), why(accounted)),
                ExitCode::kStore);
  const SlurmRun& newest = known(queued) ? queued->back() : accounted->back();
  if (newest.user == user) {
    const auto lines =
        known(queued) ? Queued(job, kAccountOfSqueue) : Accounted(job, {kAccountOfSacct});
    if (!lines) return tl::unexpected(lines.error());
    asked.account = AccountIn(*lines, number);
  }
  // Accounting has been seen to name root for a moment, before it knew the user.
  if (asked.runs.empty() && (newest.user == user || newest.user == 0))
    return Fail(
        newest.user == user ? "it has no nodes yet, or no more" : "it is root's, or nobody's yet",
        ExitCode::kStore);
  return asked;
}

PresenceTime TimeOf(const SlurmRun& run, EpochSeconds now) {
  const EpochSeconds latest = now + kAhead;
  return {run.start ? static_cast<EpochSeconds>(*run.start) : now,
          run.end ? std::min(static_cast<EpochSeconds>(*run.end), latest) : latest};
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

void SlurmAsker::Ask(uid_t user, const std::vector<SlurmQuestion>& questions) {
  for (const SlurmQuestion& about : questions) Ask(user, about);
}

/// Many nodes may fail at once, and must not keep his next jobs from being asked about.
bool SlurmAsker::HasRoom(const std::deque<Question>& questions, const SlurmQuestion& about) const {
  return std::ranges::count_if(questions, [&](const Question& one) {
           return !one.follows && one.about.index() == about.index();
         }) < kMostOfUser;
}

void SlurmAsker::Ask(uid_t user, const SlurmQuestion& about) {
  std::optional<SeenJob> seen;
  {
    std::lock_guard lock(mutex_);
    const std::pair key(user, KeyOf(about));
    const auto known = known_.find(key);
    if (known != known_.end()) seen = known->second.seen;
    if (known == known_.end() || Clock::now() > known->second.until) {
      std::deque<Question>& questions = waiting_[user];
      if (HasRoom(questions, about)) {
        if (known_.size() >= kMostRemembered) known_.clear();
        known_[key].until = Clock::time_point::max();
        questions.push_back({user, about});
      }
    }
  }
  if (seen) take_(*seen);
  changed_.notify_one();
}

/// The first question that is due of the next user who has one. Under the lock.
std::optional<SlurmAsker::Question> SlurmAsker::NextQuestion() {
  auto user = waiting_.upper_bound(last_);
  for (std::size_t i = 0; i < waiting_.size(); ++i, ++user) {
    if (user == waiting_.end()) user = waiting_.begin();
    const auto due = std::ranges::find_if(
        user->second, [](const Question& one) { return one.not_before <= Clock::now(); });
    if (due == user->second.end()) continue;
    const Question question = *due;
    last_ = question.user;
    user->second.erase(due);
    if (user->second.empty()) waiting_.erase(user);
    return question;
  }
  return std::nullopt;
}

void SlurmAsker::Serve() {
  for (;;) {
    std::optional<Question> question;
    {
      std::unique_lock lock(mutex_);
      while (!ending_ && !(question = NextQuestion())) changed_.wait_for(lock, kLookForDue);
      if (ending_) return;
    }
    Ended(*question, Answer(*question));
  }
}

/// One that Slurm has not answered waits to be asked again.
void SlurmAsker::Ended(const Question& question, const Result<Next>& answered) {
  const auto* job = std::get_if<JobQuestion>(&question.about);
  if (answered) {
    if (job != nullptr) told_ = false;
    if (*answered == Next::kFollow) Follow(question);
    return;
  }
  // That a node is up is no trouble.
  if (job != nullptr && !question.follows && !std::exchange(told_, true))
    log_({LOG_WARNING,
          fmt::format("job {}: Slurm does not say where it runs: {} (told once until it does)",
                      job->slurm_job_id, answered.error().message),
          {{"SLURM_JOB_ID", std::to_string(job->slurm_job_id)},
           {"SLURM_JOB_UID", std::to_string(question.user)}}});
  Question again = question;
  std::lock_guard lock(mutex_);
  std::deque<Question>& questions = waiting_[question.user];
  if (++again.asked >= (job != nullptr ? kMostTimes : kMostTimesOfNode) ||
      (!again.follows && !HasRoom(questions, again.about))) {
    // One that was followed has ended, and Slurm has forgotten it.
    if (!again.follows) known_.erase({again.user, KeyOf(again.about)});
    if (questions.empty()) waiting_.erase(question.user);
    return;
  }
  again.not_before = Clock::now() + (job != nullptr ? kPause : kPause * (1 << (again.asked - 1)));
  questions.push_back(again);
}

void SlurmAsker::Follow(Question question) {
  question.follows = true;
  question.asked = 0;
  question.not_before = Clock::now() + kFollow;
  std::lock_guard lock(mutex_);
  std::deque<Question>& questions = waiting_[question.user];
  const auto is_there = [&](const Question& one) {
    return one.follows && one.about == question.about;
  };
  const auto followed = std::ranges::count_if(questions, &Question::follows);
  if (followed < kMostFollowed && std::ranges::none_of(questions, is_there))
    questions.push_back(std::move(question));
}

Result<SlurmAsker::Next> SlurmAsker::Answer(const Question& question) {
  if (cluster_.empty()) {
    auto name = OutputOf({"scontrol", "show", "config"}, Deadline()).and_then(ClusterNameIn);
    if (!name) return tl::unexpected(name.error());
    cluster_ = std::move(*name);
  }
  if (const auto* node = std::get_if<NodeQuestion>(&question.about))
    return Seen(question.user, *node).map([&](const SeenOutage& outage) {
      take_(outage);
      return Next::kNothing;
    });
  return Seen(question.user, std::get<JobQuestion>(question.about))
      .map([&](const std::optional<SeenJob>& job) {
        Tell(question, job);
        const auto runs = [now = EpochSecondsNow()](const SeenJob::Stay& stay) {
          return stay.time.until > now;
        };
        return job && std::ranges::any_of(job->stays, runs) ? Next::kFollow : Next::kNothing;
      });
}

/// A run that is stored from now on hears it by its own question. Of another's job nobody hears.
void SlurmAsker::Tell(const Question& question, const std::optional<SeenJob>& job) {
  {
    std::lock_guard lock(mutex_);
    Known& known = known_[{question.user, KeyOf(question.about)}];
    known = {job, Clock::now() + kKept};
    if (known.seen) known.seen->stays.clear();
  }
  if (job) take_(*job);
}

Result<std::optional<SeenJob>> SlurmAsker::Seen(uid_t user, const JobQuestion& question) const {
  const auto asked = AskForJob(question.slurm_job_id, user);
  if (!asked) return tl::unexpected(asked.error());
  if (asked->runs.empty()) return std::nullopt;
  SeenJob job{cluster_, user, question, std::nullopt, {}};
  for (const SlurmRun& run : asked->runs) {
    if (ending_) return Fail("the service ends", ExitCode::kStore);
    const auto names = OutputOf({"scontrol", "show", "hostnames", run.nodes}, Deadline());
    if (!names) return tl::unexpected(names.error());
    job.stays.push_back({WordsOf(*names), TimeOf(run, EpochSecondsNow())});
  }
  // The launcher's clock may be another's.
  constexpr double kSkew = 600;
  if (asked->account) job.charged = {*asked->account, job.stays.back().time.since - kSkew};
  return job;
}

Result<SeenOutage> SlurmAsker::Seen(uid_t user, const NodeQuestion& question) const {
  return OutputOf({"scontrol", "--oneliner", "show", "node", question.node}, Deadline())
      .and_then([&](const std::string& words) { return OutageIn(words, question.time); })
      .map([&](EpochSeconds time) {
        return SeenOutage{cluster_, user, question.node, static_cast<EpochSeconds>(question.time),
                          time};
      });
}

}  // namespace adaptive_train
