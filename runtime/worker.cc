// adaptive-train-worker: one rank. Wires up, trains its share of the plan, reports, ends.
#include <fmt/format.h>
#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <future>
#include <memory>
#include <string_view>

#include "core/config.h"
#include "core/evaluation.h"
#include "core/file_io.h"
#include "core/file_limit.h"
#include "core/free_memory.h"
#include "core/injection.h"
#include "core/limits.h"
#include "core/measure_order.h"
#include "core/plan.h"
#include "kernels/allocation_failure.h"
#include "runtime/comm/collective.h"
#include "runtime/comm/communicator.h"
#include "runtime/control/control_channel.h"
#include "runtime/data/token_dataset.h"
#include "runtime/fatal_error.h"
#include "runtime/measure/link_profiler.h"
#include "runtime/train/evaluate.h"
#include "runtime/train/fault_injector.h"
#include "runtime/train/memory_guard.h"
#include "runtime/train/save_clock.h"
#include "runtime/train/save_memory.h"
#include "runtime/train/trainer.h"
#include "runtime/wireup/rendezvous.h"

namespace adaptive_train {
namespace {

constexpr std::size_t kMaxPlanBytes = 64u << 20;

/// This rank's identity, from the environment set by the launcher and the PMIx server.
struct Identity {
  int rank = -1;
  std::string host;
  std::string run_dir;
  std::string control;
  std::string token;
  std::string step_id;
};

std::string Variable(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? std::string() : std::string(value);
}

Identity ReadIdentity() {
  Identity self;
  char host[256] = {};
  ::gethostname(host, sizeof host - 1);
  // Slurm's name for the node, used by the launcher and the store, may differ from the host's.
  const std::string node = Variable("SLURMD_NODENAME");
  self.host = node.empty() ? host : node;
  const std::string rank = Variable("PMIX_RANK");
  self.rank = rank.empty() ? -1 : std::atoi(rank.c_str());
  self.run_dir = Variable("ADAPTIVE_TRAIN_RUN_DIR");
  self.control = Variable("ADAPTIVE_TRAIN_CONTROL");
  self.token = Variable("ADAPTIVE_TRAIN_TOKEN");
  if (!Variable("SLURM_STEP_ID").empty())
    self.step_id = Variable("SLURM_JOB_ID") + "." + Variable("SLURM_STEP_ID");
  return self;
}

constexpr std::chrono::seconds kStatusDeadline{1};
/// After a stop: from a lost peer, which may have given up already, to the launcher's own word.
/// From a rank's farewell to its end.
constexpr unsigned kEndSeconds = 15;
constexpr std::chrono::seconds kGiveUpPatience{3}, kNoPatience{0};

/// What the launcher may ask while the rank's main thread computes or waits.
ControlChannel::Orders OrdersFor(ControlChannel& control, Transport& transport) {
  ControlChannel::Orders orders;
  orders.say_status = [&control, &transport] {
    transport.Post([&control, &transport] { control.Send(transport.Status()); });
  };
  orders.give_up = [&transport] { transport.GiveUp(); };
  return orders;
}

/// Sends what the launcher would ask for, before this rank's own failure: who waited for whom.
void TellStatus(ControlChannel& control, Transport& transport) {
  auto told = std::make_shared<std::promise<void>>();
  transport.Post([&control, &transport, told] {
    control.Send(transport.Status());
    told->set_value();
  });
  told->get_future().wait_for(kStatusDeadline);
}

/// All ranks' communicator addresses, after the launcher has said that every rank has reached PMIx:
/// a fence begun earlier can lose a race in Slurm's PMIx plugin and hang.
void WireUp(ControlChannel& control, std::size_t planned_ranks,
            std::optional<Rendezvous>& rendezvous, std::unique_ptr<Communicator>& communicator) {
  const LaunchDeadlines& deadlines = control.Deadlines();
  rendezvous.emplace(
      OrThrow(Rendezvous::Join(deadlines.pmix_init), RankExit::kWireup, "PMIx_Init"));
  if (static_cast<std::size_t>(rendezvous->Size()) != planned_ranks) {
    throw FatalError(
        RankExit::kSetup, "wire-up", FatalError::kNoPeer,
        fmt::format("the plan has {} ranks, PMIx {}", planned_ranks, rendezvous->Size()));
  }
  communicator = OrThrow(Communicator::Open(rendezvous->Rank(), rendezvous->Size()),
                         RankExit::kWireup, "opening UCX");
  MainThread& main_thread = communicator->transport().main_thread();
  main_thread.WorksAt("waiting for all ranks' PMIx_Init");
  control.ObeyedBy(OrdersFor(control, communicator->transport()));
  control.Send(Ready{});
  if (!control.WaitForGo())
    throw FatalError(RankExit::kWireup, "waiting for all ranks", FatalError::kNoPeer,
                     "missed its deadline");
  main_thread.WorksAt("PMIx exchange");
  communicator->Connect(OrThrow(rendezvous->Exchange(communicator->Address(), deadlines.fence),
                                RankExit::kWireup, "PMIx exchange"));
  main_thread.WorksAt("first sum");
  double one[1] = {1};
  auto summed = communicator->World()
                    .AllReduce(Purpose::kStatistic, std::span<double>(one))
                    .Wait(RunningClock::now() + deadlines.fence);
  if (!summed) {
    TellStatus(control, communicator->transport());
    throw FatalError(RankExit::kWireup, "first " + summed.error().operation, summed.error().peer,
                     summed.error().cause);
  }
  control.Send(Wired{});
}

/// The parts of a rank in the order of their creation. They live outside Train, so that a failure
/// is reported before anything is destroyed: PMIx and UCX may hang on what has just failed.
struct Parts {
  Config config;
  Plan plan;
  std::optional<FaultInjector> faults;
  std::optional<Datasets> data;
  std::optional<Rendezvous> rendezvous;
  std::unique_ptr<Communicator> communicator;
  std::unique_ptr<Trainer> trainer;
};

void Load(const Identity& self, Parts& parts) {
  parts.config = OrThrow(LoadConfig(self.run_dir + "/config.resolved.toml", {}), RankExit::kSetup,
                         "reading the configuration");
  const std::string plan_text = OrThrow(ReadFile(self.run_dir + "/plan.json", kMaxPlanBytes),
                                        RankExit::kSetup, "reading the plan");
  parts.plan = OrThrow(PlanFromJson(plan_text), RankExit::kSetup, "reading the plan");
  if (static_cast<std::size_t>(self.rank) >= parts.plan.ranks.size()) {
    throw FatalError(RankExit::kSetup, "reading the plan", FatalError::kNoPeer,
                     fmt::format("it has no rank {}", self.rank));
  }
  const Config& config = parts.config;
  parts.data.emplace(
      OrThrow(OpenDatasets({config.data.train, config.data.validation, config.data.format,
                            config.model.sequence, TextVocab(config.model),
                            static_cast<std::uint64_t>(config.train.seed)}),
              RankExit::kSetup, "opening the data"));
}

/// A rank may connect to every other rank, with several sockets each.
void TellFileLimit(const Identity& self, ControlChannel& control, std::size_t ranks) {
  constexpr std::size_t kOtherFiles = 128;
  const std::size_t allowed = RaiseFileLimit();
  if (allowed >= 2 * ranks + kOtherFiles) return;
  const std::string line = fmt::format(
      "rank {} on {} may open {} files, and {} ranks can need {}: raise the limit (ulimit -Hn) if "
      "connections fail",
      self.rank, self.host, allowed, ranks, 2 * ranks + kOtherFiles);
  fmt::print("{}\n", line);
  if (self.rank == 0) control.Send(Notice{line});
}

/// Faults that the launcher has written down for its ranks, where the configuration permits any.
void LoadFaults(const Identity& self, ControlChannel& control, Parts& parts) {
  const std::string path = self.run_dir + "/" + kInjectionsFile;
  if (!parts.config.recovery.allow_injection || ::access(path.c_str(), F_OK) != 0) return;
  const std::string text =
      OrThrow(ReadFile(path, kMaxPlanBytes), RankExit::kSetup, "reading the faults to inject");
  parts.faults.emplace(
      OrThrow(InjectionsFromJson(text), RankExit::kSetup, "reading the faults to inject"),
      parts.plan, self.rank, [&control](const Injection& injection) {
        control.Send(Injected{ToText(injection)});
        control.Flush(kStatusDeadline);
      });
}

void Train(const Identity& self, ControlChannel& control, Parts& parts, std::int64_t& step) {
  Load(self, parts);
  LoadFaults(self, control, parts);
  TellFileLimit(self, control, parts.plan.ranks.size());
  // Wiring up waits for all ranks, so none has taken memory before all have looked.
  OrThrow(CheckMemory(parts.plan, self.rank, ResidentBytes(), FreeMemory(), FreeInProcess()),
          RankExit::kDevice, "memory");
  WireUp(control, parts.plan.ranks.size(), parts.rendezvous, parts.communicator);
  // All ranks learn in the step's sum what rank 0 asks for.
  SaveClock clock(self.rank == 0 ? parts.config.checkpoint.every_minutes : 0,
                  SaveClock::Clock::now());
  TrainerEvents events;
  events.stop_asked = [&control] { return control.StopAsked(); };
  events.stop_unsaved_asked = [&control] { return control.StopUnsavedAsked(); };
  events.end_round_asked = [&control] { return control.EndRoundAsked(); };
  events.given_up = [&control] {
    return control.WaitForGiveUp(control.StopAsked() ? kGiveUpPatience : kNoPatience);
  };
  events.sum_without_exchange = [&control](std::span<double> numbers) {
    return control.SumByLauncher(numbers, kCollectiveDeadline);
  };
  events.take_checkpoint_asked = [&] {
    const bool due = clock.Due(SaveClock::Clock::now());
    return control.TakeCheckpointAsked() || due;
  };
  events.on_step = [&](const RankMetrics& metrics) {
    step = metrics.step;
    control.Send(Metrics{metrics});
  };
  events.await_reports = [&control] { control.Flush(control.Deadlines().launcher_silence); };
  events.take_profile_asked = [&control] { return control.TakeProfileAsked(); };
  events.take_new_shares = [&control] { return control.TakeNewShares(); };
  events.on_layer_times = [&control](const LayerTimes& times) { control.Send(times); };
  events.on_saving = [&control](const Saving& saving) { control.Send(saving); };
  events.on_saved = [&](const Saved& saved) {
    clock.Saved(SaveClock::Clock::now() - std::chrono::duration_cast<SaveClock::Clock::duration>(
                                              std::chrono::duration<double>(saved.seconds)));
    control.Send(saved);
  };
  events.on_notice = [&control](const std::string& line) { control.Send(Notice{line}); };
  events.on_decision = [&control](const Decision& decision) { control.Send(decision); };
  if (parts.faults) {
    events.begin_step = [&parts](std::int64_t begun) { return parts.faults->BeginStep(begun); };
    events.save_fails = [&parts](std::int64_t saved) { return parts.faults->FailsSave(saved); };
  }
  parts.trainer = Trainer::Make(parts.config, parts.plan, self.rank, *parts.communicator,
                                *parts.data, std::move(events), KeptRunFromEnvironment());
  const std::string transports = Variable("UCX_TLS");
  fmt::print("rank {} of {} on {}: {}, UCX transports: {}\n", self.rank, parts.plan.ranks.size(),
             self.host, parts.trainer->DeviceDescription(),
             transports.empty() ? "auto" : transports);
  std::fflush(stdout);
  const Resumed resumed = parts.trainer->Resume();
  step = resumed.step;
  control.Send(resumed);
  step = parts.trainer->Run();
}

/// `adaptive-train-worker measure`: rank 0 leaves all measurements in the run folder.
void Measure(const Identity& self, ControlChannel& control, Parts& parts) {
  const std::string text = OrThrow(ReadFile(self.run_dir + "/" + kMeasureOrderFile, kMaxPlanBytes),
                                   RankExit::kSetup, "reading what to measure");
  const MeasureOrder order =
      OrThrow(MeasureOrderFromJson(text), RankExit::kSetup, "reading what to measure");
  WireUp(control, order.nodes.size(), parts.rendezvous, parts.communicator);
  NodeFigures figures;
  try {
    figures = MeasureNodes(order, parts.communicator->World());
  } catch (const FatalError& error) {
    // The launcher names the lost rank; this notice names the failed measurement.
    control.Send(Notice{fmt::format("{}{} on {}", kMeasureFailureWord, error.what(), self.host)});
    throw;
  }
  if (!figures.congestion.empty()) control.Send(Notice{figures.congestion});
  if (self.rank == 0)
    OrThrow(WriteFile(self.run_dir + "/" + kMeasuredFile, ToJson(figures.profile)),
            RankExit::kSetup, "writing what was measured");
}

/// Whether this rank has taken no more memory than its plan says, and none but its node can lack
/// some: a limit of the process (ulimit -d) is its user's.
bool KeepsToPlan(const Identity& self, const Parts& parts) {
  const auto rank = static_cast<std::size_t>(self.rank);
  return rank < parts.plan.ranks.size() && !FreeInProcess() &&
         static_cast<std::int64_t>(ResidentBytes()) <= parts.plan.ranks[rank].memory_bytes;
}

/// Tells the launcher and the log why this rank ends, then ends it.
[[noreturn]] void Fail(const Identity& self, std::unique_ptr<ControlChannel> control,
                       std::int64_t step, const Parts& parts, const FatalError& error) {
  const std::string peer = error.Peer() >= 0 ? fmt::format(" (peer: rank {})", error.Peer()) : "";
  fmt::print(stderr, "adaptive-train-worker: rank {} on {}, after step {}: {}{}\n", self.rank,
             self.host, step, error.what(), peer);
  control->Send(RankFailure{self.rank, self.host, error.Operation(), error.Peer(), error.Cause(),
                            step, ToInt(error.Code()), error.Kind(), KeepsToPlan(self, parts)});
  control.reset();
  std::_Exit(ToInt(error.Code()));
}

[[noreturn]] void FailToAllocate(const Identity& self, std::unique_ptr<ControlChannel> control,
                                 std::int64_t step, const Parts& parts, const char* what) {
  const bool planned = static_cast<std::size_t>(self.rank) < parts.plan.ranks.size();
  const std::string stage = planned ? StageInWords(parts.plan, self.rank) + ": " : "";
  Fail(self, std::move(control), step, parts,
       FatalError(RankExit::kDevice, FailureKind::kOutOfMemory, "allocation", FatalError::kNoPeer,
                  fmt::format("{}{}: {}", stage, what, kMemoryAdvice)));
}

/// Takes the rank down after its farewell. UCX and PMIx may wait for what does not come, also at
/// exit: nothing of that may leave the process behind.
[[noreturn]] void End(std::unique_ptr<ControlChannel> control, Parts& parts) {
  ::alarm(kEndSeconds);
  // After an exchange that was given up, buffers must stay until the process is gone.
  if (!control->WaitForGiveUp(kNoPatience)) {
    parts.trainer.reset();
    parts.communicator.reset();
    parts.rendezvous.reset();
  }
  control.reset();
  std::fflush(nullptr);
  std::_Exit(ToInt(RankExit::kDone));
}

/// `adaptive-train-worker evaluate REQUEST`: for adaptive-train eval. Prints the answer.
int RunEvaluation(const char* text) try {
  const auto request = EvaluationRequestFromJson(text);
  const Result<Evaluation> evaluation =
      request ? Evaluate(*request) : Result<Evaluation>(tl::unexpected(request.error()));
  if (!evaluation) {
    fmt::print(stderr, "{}\n", evaluation.error().message);
    return ToInt(RankExit::kSetup);
  }
  fmt::print("{}\n", ToJson(*evaluation));
  return 0;
} catch (const std::exception& error) {
  fmt::print(stderr, "evaluating: {}\n", error.what());
  return ToInt(RankExit::kDevice);
}

/// `adaptive-train-worker save-memory RUN_DIR FOLDER LEAST COMMITTED`: when the ranks are gone. Prints a
/// dot for each block on disk, then the step in a line.
int RunMemorySave(char** words) {
  const auto saved = SaveMemory(words[0], words[1], std::atoll(words[2]), std::atoll(words[3]), [] {
    std::fputc('.', stdout);
    std::fflush(stdout);
  });
  if (!saved) {
    fmt::print(stderr, "{}\n", saved.error().message);
    return ToInt(RankExit::kCheckpoint);
  }
  fmt::print("\n{}\n", *saved);
  return 0;
}

/// The launcher is told of these and decides what they mean. A rank that reacted to one would look
/// like a failure.
const std::vector<int> kPassedOn = {SIGINT, SIGTERM, SIGHUP, SIGUSR1};

/// In all threads, as they inherit it. What comes before the launcher is found waits.
void HoldSignals() {
  sigset_t held;
  ::sigemptyset(&held);
  for (int signal : kPassedOn) ::sigaddset(&held, signal);
  ::pthread_sigmask(SIG_BLOCK, &held, nullptr);
  for (int signal : {SIGPIPE, SIGXFSZ}) ::signal(signal, SIG_IGN);
}

/// A job that has lost its batch host needs somebody to requeue it: one rank of a few nodes, as each
/// of them asks Slurm's controller.
std::vector<std::string> WhenLauncherLost(const Identity& self) {
  constexpr int kNodesThatAsk = 4;
  const std::string host = Variable("ADAPTIVE_TRAIN_BATCH_HOST"), job = Variable("SLURM_JOB_ID");
  if (host.empty() || job.empty() || host == self.host) return {};
  if (Variable("SLURM_LOCALID") != "0" ||
      std::atoi(Variable("SLURM_NODEID").c_str()) >= kNodesThatAsk)
    return {};
  std::error_code error;
  const auto program = std::filesystem::read_symlink("/proc/self/exe", error);
  if (error) return {};
  return {program.parent_path() / "adaptive-train", "requeue-lost", "--job", job, "--host", host};
}

/// Whether there is no room for the stack of a thread, the largest piece that libraries take at once.
/// Async-signal-safe.
bool LacksMemory() {
  constexpr std::size_t kStack = std::size_t{8} << 20;
  void* room = ::mmap(nullptr, kStack, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (room == MAP_FAILED) return errno == ENOMEM;
  ::munmap(room, kStack);
  return false;
}

/// UCX aborts where it gets no memory, and so does C++ on a thread: the rank's end says so.
void NameLackOfMemory() {
  ::signal(SIGABRT, [](int) {
    if (LacksMemory()) {
      constexpr std::string_view kLine = "adaptive-train-worker: out of memory; the rank ends\n";
      [[maybe_unused]] const ssize_t n = ::write(STDERR_FILENO, kLine.data(), kLine.size());
      ::_exit(ToInt(RankExit::kMemory));
    }
    ::signal(SIGABRT, SIG_DFL);
    ::raise(SIGABRT);  // comes when this returns
  });
}

int Main(bool measures) {
  HoldSignals();
  NameLackOfMemory();
  const Identity self = ReadIdentity();
  if (self.rank < 0 || self.control.empty() || self.run_dir.empty()) {
    std::fprintf(stderr, "adaptive-train-worker: is started by adaptive-train run, not by hand\n");
    return ToInt(RankExit::kSetup);
  }
  auto control = ControlChannel::Connect({self.control,
                                          self.token,
                                          {self.rank, self.host, ::getpid(), self.step_id, "", ""},
                                          WhenLauncherLost(self),
                                          kPassedOn});
  if (!control) {
    std::fprintf(stderr, "adaptive-train-worker: rank %d on %s: %s\n", self.rank, self.host.c_str(),
                 control.error().message.c_str());
    return ToInt(RankExit::kLauncherLost);
  }
  std::int64_t step = 0;
  Parts parts;
  try {
    if (measures) {
      Measure(self, **control, parts);
    } else {
      Train(self, **control, parts, step);
    }
  } catch (const FatalError& error) {
    Fail(self, std::move(*control), step, parts, error);
  } catch (const kernels::AllocationFailure& failure) {
    FailToAllocate(self, std::move(*control), step, parts, failure.what());
  } catch (const std::bad_alloc&) {
    FailToAllocate(self, std::move(*control), step, parts, "out of memory");
  } catch (const std::exception& error) {
    // Such as a thread that cannot be started.
    if (LacksMemory()) FailToAllocate(self, std::move(*control), step, parts, error.what());
    Fail(self, std::move(*control), step, parts,
         FatalError(RankExit::kDevice, "computing", FatalError::kNoPeer, error.what()));
  }
  (*control)->Send(Goodbye{step});
  (*control)->ObeyedBy({});
  End(std::move(*control), parts);
}

}  // namespace
}  // namespace adaptive_train

int main(int argc, char** argv) {
  if (argc == 3 && std::strcmp(argv[1], "evaluate") == 0)
    return adaptive_train::RunEvaluation(argv[2]);
  if (argc == 6 && std::strcmp(argv[1], "save-memory") == 0)
    return adaptive_train::RunMemorySave(argv + 2);
  return adaptive_train::Main(argc == 2 && std::strcmp(argv[1], "measure") == 0);
}
