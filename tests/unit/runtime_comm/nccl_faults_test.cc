// Random scripts of faults: every rank ends within its deadlines or goes on, and the rank that failed
// first is named. NCCL_FAULT_SCRIPTS: how many, 50 by default.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <mutex>
#include <optional>
#include <random>

#include "runtime/comm/nccl_communicator.h"
#include "tests/unit/runtime_comm/fake_ranks.h"

namespace adaptive_train::nccl_faults_test {
namespace {

using fake_nccl::Call;
using fake_nccl::Fault;
using fake_nccl::Kind;
using Chance = std::mt19937;

int Below(Chance& chance, int limit) { return std::uniform_int_distribution(0, limit - 1)(chance); }

enum class Step { kAllReduce, kAllGather, kReduceScatter, kRing };

/// What is to go wrong.
enum class Trouble {
  kNone,
  kSlow,
  kEnqueueHangs,
  kError,
  kLateError,
  kDeath,
  kJoinHangs,
  kSplitHangs,
  kFinishHangs,
  kDestroyHangs,
  kOtherVersion,
  kOldVersion,
};
constexpr int kTroubles = 12;

/// A run of a few ranks, and what it must come to.
struct Run {
  int size = 2;
  std::vector<Step> steps;
  bool split = false;  // the steps are in two groups: the lower half of the ranks, the upper one
  Trouble trouble = Trouble::kNone;
  int victim = 0;
  int step = 0;  // at which it happens
  fake_nccl::Script script;

  bool Recovers() const { return trouble == Trouble::kNone || trouble == Trouble::kSlow; }
  /// All wait for each other in a call of which NCCL says nothing more.
  bool IsNobodys() const {
    return trouble == Trouble::kJoinHangs || trouble == Trouble::kSplitHangs ||
           trouble == Trouble::kFinishHangs;
  }
  bool IsAtStep() const {
    return trouble == Trouble::kEnqueueHangs || trouble == Trouble::kError ||
           trouble == Trouble::kLateError || trouble == Trouble::kDeath;
  }
  std::vector<int> GroupOf(int rank) const {
    if (!split) return AllRanks(size);
    std::vector<int> members;
    for (int other = 0; other < size; ++other)
      if ((other < size / 2) == (rank < size / 2)) members.push_back(other);
    return members;
  }
};

nccl::ncclResult_t OwnError(Chance& chance) {
  const nccl::ncclResult_t errors[] = {nccl::ncclUnhandledCudaError, nccl::ncclSystemError,
                                       nccl::ncclInternalError};
  return errors[Below(chance, 3)];
}

/// The fault of the library that makes the trouble, if it is one.
std::optional<Fault> FaultFor(const Run& run, Chance& chance) {
  const auto fault = [&run](Call call, Kind kind, int nth = 0) {
    return Fault{run.victim, call, nth, kind, nccl::ncclSuccess, 0};
  };
  Fault at_step = fault(Call::kEnqueue, Kind::kInProgress, run.step);
  switch (run.trouble) {
    case Trouble::kNone:
    case Trouble::kDeath:
    case Trouble::kOtherVersion:
    case Trouble::kOldVersion:
      return std::nullopt;
    case Trouble::kSlow:
      at_step.kind = Kind::kSlow;
      at_step.polls = 10 + Below(chance, 90);
      return at_step;
    case Trouble::kEnqueueHangs:
      return at_step;
    case Trouble::kError:
      at_step.kind = Kind::kError;
      at_step.code = OwnError(chance);
      return at_step;
    case Trouble::kLateError:
      at_step.kind = Kind::kLateError;
      at_step.code = OwnError(chance);
      at_step.polls = Below(chance, 3);
      return at_step;
    case Trouble::kJoinHangs:
      return fault(Call::kInit, Kind::kInProgress);
    case Trouble::kSplitHangs:
      return fault(Call::kSplit, Kind::kInProgress);
    case Trouble::kFinishHangs:
      return fault(Call::kFinalize, Kind::kInProgress);
    case Trouble::kDestroyHangs:
      return fault(Call::kDestroy, Kind::kNeverReturns);
  }
  return std::nullopt;
}

Run MakeRun(unsigned seed) {
  Chance chance(seed);
  Run run;
  run.trouble = static_cast<Trouble>(Below(chance, kTroubles));
  run.split = run.trouble == Trouble::kSplitHangs || Below(chance, 3) == 0;
  run.size = (run.split ? 4 : 2) + Below(chance, 3);
  const int steps = 1 + Below(chance, 6);
  for (int i = 0; i < steps; ++i) run.steps.push_back(static_cast<Step>(Below(chance, 4)));
  run.victim = Below(chance, run.size);
  run.step = Below(chance, steps);
  run.script.peers_learn = Below(chance, 2) == 0;
  if (const auto fault = FaultFor(run, chance)) run.script.faults.push_back(*fault);
  for (int rank = 0; rank < run.size; ++rank)
    if (Below(chance, 4) == 0)
      run.script.faults.push_back({rank, Call::kAbort, 0, Kind::kNeverReturns, {}, 0});
  return run;
}

/// The numbers of a rank before a step: sums of them are exact.
std::vector<float> Before(int rank, std::size_t count) {
  std::vector<float> numbers(count);
  for (std::size_t i = 0; i < count; ++i)
    numbers[i] = static_cast<float>((rank + 1) * 10) + static_cast<float>(i);
  return numbers;
}

/// What a rank has after a step; of a reduce-scatter only its own part counts.
std::vector<float> After(Step step, const std::vector<int>& group, std::size_t number,
                         std::size_t part) {
  const std::size_t size = group.size();
  const int before = group[(number + size - 1) % size];
  std::vector<float> numbers = Before(step == Step::kRing ? before : group[number], part * size);
  for (std::size_t i = 0; i < numbers.size() && step != Step::kRing; ++i) {
    if (step == Step::kAllGather) {
      numbers[i] = Before(group[i / part], part * size)[i];
    } else if (step == Step::kAllReduce || i / part == number) {
      numbers[i] = 0;
      for (const int rank : group) numbers[i] += Before(rank, part * size)[i];
    }
  }
  return numbers;
}

/// What the ranks of a run share, and what came of it.
struct Course {
  explicit Course(const Run& of) : run(of), gate(of.size), dead(of.size) {}

  const Run& run;
  Gate gate;         // at the step of the trouble
  Gate dead;         // all ranks have ended
  std::mutex mutex;  // guards what follows
  std::vector<MemberReport> world, group;
  std::vector<std::string> wrong, words;
};

/// One rank of a run.
class Rank {
 public:
  Rank(Course& course, FakeRank& own)
      : course_(course),
        run_(course.run),
        own_(own),
        group_(run_.GroupOf(own.rank)),
        number_(static_cast<int>(std::ranges::find(group_, own.rank) - group_.begin())) {
    if (run_.split)
      child_.emplace(own.library, own.executor, stream_.get(),
                     NcclPlace{"data group", group_, number_}, Deadlines());
  }

  /// Until its end, well or not; false: it died.
  bool Live() {
    if (!Good(own_.world.Join(own_.invitation))) return true;
    if (run_.split && !Good(own_.world.Split(&*child_))) return true;
    for (int step = 0; step < static_cast<int>(run_.steps.size()); ++step) {
      const bool here = run_.IsAtStep() && step == run_.step;
      if (here && IsVictim() && run_.trouble == Trouble::kDeath) {
        fake_nccl::Die(own_.invitation.id, own_.rank);
        return false;
      }
      if (!Take(run_.steps[static_cast<std::size_t>(step)], here)) return true;
    }
    if (run_.trouble == Trouble::kFinishHangs) Used().SetDeadlines({kShort, Deadlines().end});
    Good(Used().Finish());
    return true;
  }

  void Tell(bool alive) {
    if (!at_gate_) course_.gate.Arrive();
    const std::lock_guard lock(course_.mutex);
    if (!words_.empty()) course_.words.push_back(words_);
    if (alive) course_.world.push_back(own_.world.Report());
    if (alive && child_) course_.group.push_back(child_->Report());
    if (!words_.empty() && run_.Recovers()) course_.wrong.push_back(words_);
    if (words_.find("missed its deadline") != std::string::npos)
      course_.wrong.push_back("hangs: " + words_);
    const auto& faults = run_.script.faults;
    // A rank that refuses to join has nothing to abort.
    const bool joined = run_.trouble != Trouble::kOtherVersion || !IsVictim();
    const bool hangs = joined && std::ranges::any_of(faults, [this](const Fault& fault) {
                         return fault.rank == own_.rank && fault.call == Call::kAbort;
                       });
    if (alive && !words_.empty() && hangs && !own_.world.Report().left_behind &&
        !(child_ && child_->Report().left_behind))
      course_.wrong.push_back("says nothing of its abort: " + words_);
  }

 private:
  bool IsVictim() const { return own_.rank == run_.victim; }
  NcclCommunicator& Used() { return child_ ? *child_ : own_.world; }
  NcclDeadlines Deadlines() const { return DeadlinesOf(run_.script, own_.rank); }

  bool Good(Request request) {
    const auto outcome = request.Wait(Late());
    if (!outcome) words_ = Words(outcome);
    return outcome.has_value();
  }

  bool Take(Step step, bool is_trouble) {
    constexpr std::size_t kPart = 3;
    const std::size_t size = group_.size();
    auto data = Before(own_.rank, kPart * size), came = data;
    Request request = Start(step, data, came);
    ++started_;
    if (is_trouble) {
      at_gate_ = true;
      Shorten(Used(), started_ + (child_ ? 0 : 1), IsVictim(), course_.gate, Deadlines());
    }
    if (!Good(std::move(request))) return false;
    const auto expected = After(step, group_, static_cast<std::size_t>(number_), kPart);
    const auto& result = step == Step::kRing ? came : data;
    const std::size_t first =
        step == Step::kReduceScatter ? static_cast<std::size_t>(number_) * kPart : 0;
    const std::size_t count = step == Step::kReduceScatter ? kPart : result.size();
    if (std::equal(&result[first], &result[first] + count, &expected[first])) return true;
    const std::lock_guard lock(course_.mutex);
    course_.wrong.push_back("a result is wrong");
    return true;
  }

  Request Start(Step step, std::vector<float>& data, std::vector<float>& came) {
    const int size = static_cast<int>(group_.size());
    switch (step) {
      case Step::kAllReduce:
        return Used().AllReduce(std::span(data));
      case Step::kAllGather:
        return Used().AllGather(std::span(data));
      case Step::kReduceScatter:
        return Used().ReduceScatter(std::span(data));
      case Step::kRing:
        break;
    }
    return Used().Exchange({{(number_ + 1) % size, true, std::span(data)},
                            {(number_ + size - 1) % size, false, std::span(came)}});
  }

  Course& course_;
  const Run& run_;
  FakeRank& own_;
  const std::vector<int> group_;
  const int number_;
  const FakeStream stream_;
  std::optional<NcclCommunicator> child_;
  std::int64_t started_ = 0;
  bool at_gate_ = false;
  std::string words_;
};

/// The report of a rank whose library was refused.
MemberReport Refused(int rank, const std::string& cause) {
  MemberReport report;
  report.rank = rank;
  report.fault = MemberFault::kOwn;
  report.cause = cause;
  return report;
}

void LiveAs(Course& course, int rank, const NcclInvitation& invitation) {
  const Run& run = course.run;
  const bool odd = rank == run.victim;
  if (odd && run.trouble == Trouble::kOldVersion) {
    fake_nccl::SayVersion(21405);
    const auto library = nccl::Library::Open(FAKE_NCCL);
    const std::lock_guard lock(course.mutex);
    course.world.push_back(Refused(rank, library ? "" : library.error().message));
    course.dead.Arrive();
    return;
  }
  if (odd && run.trouble == Trouble::kOtherVersion) fake_nccl::SayVersion(22105);
  NcclDeadlines deadlines = DeadlinesOf(run.script, rank);
  if (run.trouble == Trouble::kOtherVersion || run.trouble == Trouble::kOldVersion)
    deadlines.progress = kShort;
  FakeRank own(rank, run.size, invitation, deadlines);
  Rank itself(course, own);
  itself.Tell(itself.Live());
  // A dead rank's communicator is not aborted while others live.
  course.dead.Arrive();
  course.dead.Wait();
}

/// What is wrong with the outcome; empty: nothing.
std::string Judge(const Course& course) {
  const Run& run = course.run;
  if (!course.wrong.empty()) return course.wrong.front();
  if (run.Recovers()) return "";
  if (course.words.empty() && run.trouble != Trouble::kOldVersion)
    return "nobody reports a failure";
  // The group of the trouble comes first: others that share ranks with it wait for its members.
  const std::vector<int> members = run.GroupOf(run.victim);
  std::vector<MemberReport> reports;
  for (const MemberReport& report : course.group)
    if (std::ranges::find(members, report.rank) != members.end()) reports.push_back(report);
  const bool in_group = run.split && (run.IsAtStep() || run.trouble == Trouble::kDestroyHangs ||
                                      run.trouble == Trouble::kFinishHangs);
  const auto first =
      in_group ? FirstToFail(members, reports) : FirstToFail(AllRanks(run.size), course.world);
  if (run.IsNobodys()) return first ? "names a rank where nothing shows one" : "";
  if (!first) return "names no rank";
  if (first->rank != run.victim)
    return "names rank " + std::to_string(first->rank) + " (" + first->why + ")";
  return first->why.empty() ? "does not say why" : "";
}

std::string Play(unsigned seed) {
  const Run run = MakeRun(seed);
  Course course(run);
  const NcclInvitation invitation = Invite(OpenFake()).value();
  fake_nccl::Play(invitation.id, run.script);
  std::vector<std::thread> ranks;
  for (int rank = 0; rank < run.size; ++rank)
    ranks.emplace_back([&course, rank, &invitation] { LiveAs(course, rank, invitation); });
  for (std::thread& rank : ranks) rank.join();
  const std::string wrong = Judge(course);
  if (wrong.empty()) return "";
  return "script " + std::to_string(seed) + " (trouble " +
         std::to_string(static_cast<int>(run.trouble)) + ", rank " + std::to_string(run.victim) +
         " of " + std::to_string(run.size) + ", step " + std::to_string(run.step) + "): " + wrong;
}

TEST(NcclFaults, EachScriptEndsOrRecoversAndNamesTheFirstToFail) {
  const char* const asked = std::getenv("NCCL_FAULT_SCRIPTS");
  const unsigned scripts = asked == nullptr ? 50 : static_cast<unsigned>(std::atoi(asked));
  constexpr unsigned kAtOnce = 10;  // they wait more than they work
  std::mutex mutex;
  std::vector<std::string> wrong;
  for (unsigned first = 0; first < scripts; first += kAtOnce) {
    std::vector<std::thread> threads;
    for (unsigned seed = first; seed < std::min(first + kAtOnce, scripts); ++seed)
      threads.emplace_back([&, seed] {
        const std::string what = Play(seed);
        const std::lock_guard lock(mutex);
        if (!what.empty()) wrong.push_back(what);
      });
    for (std::thread& thread : threads) thread.join();
    fake_nccl::Release();
  }
  EXPECT_THAT(wrong, testing::IsEmpty());
}

}  // namespace
}  // namespace adaptive_train::nccl_faults_test
