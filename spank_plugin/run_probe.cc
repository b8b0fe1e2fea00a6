#include "spank_plugin/run_probe.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "core/result.h"
#include "spank_plugin/descriptor.h"
#include "spank_plugin/probe_child.h"
#include "spank_plugin/seconds.h"
#include "spank_plugin/strays.h"

namespace adaptive_train::plugin {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::chrono::milliseconds kEndDeadline{500};  // until killed processes are gone
constexpr std::size_t kMaxComplaintBytes = 1024;        // of the probe's stderr
constexpr std::size_t kShownComplaintBytes = 160;
constexpr int kFirstFreeDescriptor = 10;  // the child rearranges those below

/// A pipe outside descriptors 0 to 3, which are free in some of Slurm's processes.
struct Pipe {
  Descriptor read, write;
};

bool MoveUp(Descriptor& descriptor) {
  Descriptor moved(::fcntl(descriptor.Get(), F_DUPFD_CLOEXEC, kFirstFreeDescriptor));
  descriptor = std::move(moved);
  return descriptor.IsOpen();
}

bool Open(Pipe& pipe) {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) return false;
  pipe.read = Descriptor(ends[0]);
  pipe.write = Descriptor(ends[1]);
  return MoveUp(pipe.read) && MoveUp(pipe.write) &&
         ::fcntl(pipe.read.Get(), F_SETFL, O_NONBLOCK) == 0;
}

/// Reads what is available, keeping the first `limit` bytes, and closes the pipe at its end.
/// Returns the total received so far.
std::size_t Drain(Descriptor& pipe, std::string& kept, std::size_t limit) {
  if (!pipe.IsOpen()) return 0;
  char block[65536];
  const ssize_t n = ::read(pipe.Get(), block, sizeof block);
  if (n < 0 && (errno == EAGAIN || errno == EINTR)) return 0;
  if (n <= 0) {
    pipe.Close();
    return 0;
  }
  kept.append(block, std::min(static_cast<std::size_t>(n), limit - kept.size()));
  return static_cast<std::size_t>(n);
}

/// A running probe. Its process group never outlives this object, whatever happens to the caller.
class Child {
 public:
  explicit Child(const ProbeRequest& request)
      : request_(request), give_up_(Clock::now() + request.deadline) {}
  ~Child() { End(); }
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;

  Result<void> Start();
  /// Reads until the probe has ended, written too much, or missed the deadline; then ends it.
  void Listen();
  ProbeOutcome Judge() const;

 private:
  bool MayGoOn() const;
  bool Hear();
  void Wait();
  void End();
  std::string Complaint() const;
  std::string Problem() const;

  const ProbeRequest& request_;
  const Clock::time_point give_up_;
  Strays strays_;
  Pipe output_pipe_, complaint_pipe_, failure_pipe_;
  pid_t pid_ = -1;
  bool ended_ = false;
  siginfo_t how_{};
  std::string output_, complaint_;
  std::size_t output_bytes_ = 0;
  LaunchFailure failure_{};
};

Result<void> Child::Start() {
  Descriptor null(::open("/dev/null", O_RDONLY | O_CLOEXEC));
  if (!null.IsOpen() || !MoveUp(null) || !Open(output_pipe_) || !Open(complaint_pipe_) ||
      !Open(failure_pipe_)) {
    return Fail(std::string("cannot start the probe: pipe: ") + std::strerror(errno));
  }
  std::string path = request_.path;
  std::vector<std::string> environment = request_.environment;
  std::vector<char*> envp;
  envp.reserve(environment.size() + 1);
  for (std::string& entry : environment) envp.push_back(entry.data());
  envp.push_back(nullptr);
  char* argv[] = {path.data(), nullptr};
  const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(request_.deadline).count();
  const Launch launch{path.c_str(),
                      argv,
                      envp.data(),
                      null.Get(),
                      output_pipe_.write.Get(),
                      complaint_pipe_.write.Get(),
                      failure_pipe_.write.Get(),
                      static_cast<rlim_t>(seconds + 1),
                      request_.run_as ? &*request_.run_as : nullptr,
                      ::getpid()};
  pid_ = ::fork();
  if (pid_ == 0) BecomeProbe(launch);
  if (pid_ < 0) return Fail(std::string("cannot start the probe: fork: ") + std::strerror(errno));
  output_pipe_.write.Close();
  complaint_pipe_.write.Close();
  failure_pipe_.write.Close();
  return {};
}

void Child::Listen() {
  while (!ended_ && MayGoOn()) Wait();
  // The probe's last output may still be in the pipes, and a process that it started may hold them
  // open.
  while (ended_ && MayGoOn() && Hear()) {
  }
  if (::read(failure_pipe_.read.Get(), &failure_, sizeof failure_) !=
      static_cast<ssize_t>(sizeof failure_))
    failure_ = {};
  End();
}

bool Child::MayGoOn() const {
  return output_bytes_ <= request_.max_output_bytes && Clock::now() < give_up_;
}

/// Reads what is in the pipes; false if there was nothing.
bool Child::Hear() {
  const std::size_t said = Drain(output_pipe_.read, output_, request_.max_output_bytes);
  output_bytes_ += said;
  return Drain(complaint_pipe_.read, complaint_, kMaxComplaintBytes) + said > 0;
}

/// One round: sleeps until there is output, a pipe ends, or a short time is over.
void Child::Wait() {
  pollfd pipes[] = {{output_pipe_.read.Get(), POLLIN, 0}, {complaint_pipe_.read.Get(), POLLIN, 0}};
  const bool silent = !output_pipe_.read.IsOpen() && !complaint_pipe_.read.IsOpen();
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(give_up_ - Clock::now());
  // Pipes end with the probe unless a process that it started holds them open, so the probe is
  // checked at intervals.
  const auto pause = std::min(left, std::chrono::milliseconds(silent ? 1 : 20));
  ::poll(pipes, 2, static_cast<int>(std::max<std::int64_t>(pause.count(), 0)));
  Hear();
  // WNOWAIT: the pid must not be reused until the group is killed.
  how_ = {};
  ended_ = ::waitid(P_PID, static_cast<id_t>(pid_), &how_, WEXITED | WNOHANG | WNOWAIT) != 0 ||
           how_.si_pid == pid_;
}

void Child::End() {
  if (pid_ <= 0) return;
  const auto deadline = Clock::now() + kEndDeadline;
  ::kill(-pid_, SIGKILL);
  ::kill(pid_, SIGKILL);  // it may not have reached setsid
  Reap(pid_, deadline);
  pid_ = -1;
  strays_.End(request_.run_as ? request_.run_as->user : ::geteuid(), deadline);
}

/// The first line of the probe's stderr, made safe for a log.
std::string Child::Complaint() const {
  std::string line = complaint_.substr(0, std::min(complaint_.find('\n'), kShownComplaintBytes));
  std::replace_if(
      line.begin(), line.end(),
      [](char c) {
        return static_cast<unsigned char>(c) < 0x20 || static_cast<unsigned char>(c) > 0x7e;
      },
      '?');
  return line.empty() ? line : ": " + line;
}

/// What went wrong with the process; empty if nothing.
std::string Child::Problem() const {
  if (failure_.error != 0)
    return std::string("did not start: ") + failure_.step + ": " + std::strerror(failure_.error);
  if (output_bytes_ > request_.max_output_bytes)
    return "printed more than " + std::to_string(request_.max_output_bytes) + " bytes";
  if (!ended_) {
    return "did not finish within " + InSeconds(request_.deadline) + Complaint();
  }
  if (how_.si_code == CLD_KILLED || how_.si_code == CLD_DUMPED) {
    return "was ended by signal " + std::to_string(how_.si_status) + " (" +
           ::strsignal(how_.si_status) + ")" + Complaint();
  }
  if (how_.si_status != 0)
    return "ended with status " + std::to_string(how_.si_status) + Complaint();
  return "";
}

ProbeOutcome Child::Judge() const {
  ProbeOutcome outcome;
  std::string problem = Problem();
  if (output_bytes_ <= request_.max_output_bytes) outcome.document = LastDocument(output_);
  if (problem.empty() && outcome.document.empty()) {
    problem = "printed no JSON document, but " + std::to_string(output_bytes_) +
              " bytes of something else" + Complaint();
  }
  if (!problem.empty()) outcome.problem = "probe " + request_.path + " " + problem;
  return outcome;
}

}  // namespace

ProbeOutcome RunProbe(const ProbeRequest& request) {
  Child child(request);
  if (const auto started = child.Start(); !started) return {"", started.error().message};
  child.Listen();
  return child.Judge();
}

std::string_view LastDocument(std::string_view output) {
  std::string_view document;
  for (std::size_t end = output.find('\n'); end != std::string_view::npos;
       end = output.find('\n')) {
    const std::string_view line = output.substr(0, end);
    output.remove_prefix(end + 1);
    if (line.size() >= 2 && line.front() == '{' && line.back() == '}' &&
        line.find('\0') == std::string_view::npos)
      document = line;
  }
  return document;
}

}  // namespace adaptive_train::plugin
